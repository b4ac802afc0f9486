// Ceilings from bytes and bandwidths: every row of reference/hisparse.md 5.3.
#include "plan/speed.h"

#include "tests/unit/plan_fixture.h"

namespace hisparse::plan {
namespace {

StepShape shape_of(const Fields& fields, RowType rows, Bandwidths bandwidths) {
  const ModelGeometry model = geometry(fields);
  const auto groups = cache_groups(model, 8, rows, Mtp::kOff);
  StepShape shape;
  shape.request = {.attention = model.attention,
                   .rows = token_rows(groups, 8),
                   .disk = disk_page(groups, 8, 64),
                   .hot_bytes = 0,
                   .page_tokens = 64};
  shape.top_k = model.indexer.top_k;
  shape.layers = model.layers;
  shape.bandwidths = bandwidths;
  shape.weight_bytes = [](double) { return 0.0; };
  return shape;
}

StepShape glm(RowType rows = RowType::kFp8) {
  Bandwidths bandwidths = parse_machine("8xH200")->bandwidths;
  bandwidths.disk = 6e9;
  return shape_of(glm_5_3(), rows, bandwidths);
}

struct MissLine {
  double miss;
  double rows;
  double b1_stream, b1_gather, b1_ms, b1_ceiling;
  double b8_stream, b8_gather, b8_ms, b8_ceiling;
};
constexpr MissLine kTable[] = {{0.01, 20, 0.2, 0.4, 0.03, 35'300, 2.0, 2.9, 0.23, 4410},
                               {0.02, 41, 0.5, 0.7, 0.06, 17'650, 3.9, 5.8, 0.45, 2210},
                               {0.05, 102, 1.2, 1.8, 0.14, 7060, 9.8, 14.5, 1.13, 883},
                               {0.10, 205, 2.4, 3.6, 0.28, 3530, 19.5, 29, 2.27, 441},
                               {0.20, 410, 4.9, 7.3, 0.57, 1765, 39, 58, 4.53, 221},
                               {0.50, 1024, 12.2, 18.2, 1.42, 706, 98, 145, 11.3, 88},
                               {1.00, 2048, 24.4, 36.3, 2.83, 353, 195, 290, 22.7, 44}};

TEST(PlanSpeed, LinkCostsOfMissesAreThoseOfTheTable) {
  constexpr double kRounding = 0.051;
  for (const MissLine& line : kTable) {
    SCOPED_TRACE(line.miss);
    const MissCost one = miss_cost(glm(), 1, line.miss);
    EXPECT_NEAR(one.rows_per_layer, line.rows, 0.51);
    EXPECT_NEAR(one.stream_us_per_layer, line.b1_stream, kRounding);
    EXPECT_NEAR(one.gather_us_per_layer, line.b1_gather, kRounding);
    EXPECT_NEAR(one.gather_ms_per_step, line.b1_ms, 0.0051);
    EXPECT_NEAR(one.tokens_per_second, line.b1_ceiling, 0.002 * line.b1_ceiling);
    const MissCost eight = miss_cost(glm(), 8, line.miss);
    EXPECT_NEAR(eight.stream_us_per_layer, line.b8_stream, line.b8_stream > 20 ? 0.51 : kRounding);
    EXPECT_NEAR(eight.gather_us_per_layer, line.b8_gather, line.b8_gather > 20 ? 0.51 : kRounding);
    EXPECT_NEAR(eight.gather_ms_per_step, line.b8_ms, line.b8_ms > 10 ? kRounding : 0.0051);
    EXPECT_NEAR(eight.tokens_per_second, line.b8_ceiling, 0.006 * line.b8_ceiling);
  }
}

// "bf16: 100 %, B8: 39.8 ms/step, 25 tok/s/request; 5 %, B8: 1.99 ms".
TEST(PlanSpeed, Bf16RowsCostAsTheTableSays) {
  EXPECT_NEAR(miss_cost(glm(RowType::kBf16), 8, 1.0).gather_ms_per_step, 39.8, 0.051);
  EXPECT_NEAR(miss_cost(glm(RowType::kBf16), 8, 1.0).tokens_per_second, 25, 0.5);
  EXPECT_NEAR(miss_cost(glm(RowType::kBf16), 8, 0.05).gather_ms_per_step, 1.99, 0.0051);
}

// "Indexer scan at 1M: 2.9 GB/step", 0.76 ms at 80 % of 4.8 TB/s: 0.61 ms at all of it.
TEST(PlanSpeed, ASparseStepReadsAllIndexKeysAndTheSelectedRows) {
  const StepShape shape = glm();
  const StepCost step = resident_step(shape, 1 << 20, 1);
  EXPECT_DOUBLE_EQ(step.memory_bytes, 2772.0 * (1 << 20) + 2048.0 * 51'168);
  EXPECT_NEAR(2772.0 * (1 << 20) / (0.8 * shape.bandwidths.memory) * 1e3, 0.76, 0.005);
  EXPECT_EQ(step.link_bytes, 0.0);
  // A context below top-k is read whole.
  EXPECT_DOUBLE_EQ(resident_step(shape, 1000, 1).memory_bytes, 53'940.0 * 1000);
}

// 1M fp8 rows read whole: 57.4 GB with MTP rows are 12 ms (kv_science.md 1.1); a dense model does
// read all of its rows.
TEST(PlanSpeed, ADenseStepReadsEverythingAndStreamsWhatIsSpilled) {
  const StepShape shape = shape_of(qwen2_72b(), RowType::kBf16,
                                   {.memory = 4.8e12, .stream = 55e9, .gather = 37e9, .disk = 6e9});
  const std::int64_t context = 128 << 10;
  const double bytes = 131'072.0 * 327'680 / 8;  // on each of 8 ranks
  EXPECT_DOUBLE_EQ(resident_step(shape, context, 3).memory_bytes, 3 * bytes);
  const StepCost host = host_step(shape, context, 3, 0.1);
  EXPECT_DOUBLE_EQ(host.link_bytes, 3 * bytes);  // no misses to choose: all of it
  EXPECT_EQ(host.miss, 1.0);
  EXPECT_NEAR(*host.seconds(), 3 * bytes / 55e9, 1e-9);
  EXPECT_NEAR(*host.tokens_per_second(), 55e9 / (3 * bytes), 1e-6);
  const StepCost disk = disk_step(shape, context, 1, 1.0);
  EXPECT_GE(disk.link_bytes, 8 * bytes);  // the whole machine reads every rank's file
  EXPECT_LT(disk.link_bytes, 1.5 * 8 * bytes);
}

TEST(PlanSpeed, FromDiskAMissedRowCostsASliceOfItsPage) {
  const StepShape shape = glm();
  const StepCost step = disk_step(shape, 1 << 20, 1, 0.1);
  EXPECT_NEAR(step.link_bytes, 204.8 * static_cast<double>(shape.request.disk.bytes), 1.0);
  EXPECT_EQ(shape.request.disk.bytes, 78 * shape.request.disk.slice_bytes);
  // Not more slices than the context has pages.
  const StepCost whole = disk_step(shape, 6400, 1, 1.0);
  EXPECT_DOUBLE_EQ(whole.link_bytes, 100.0 * static_cast<double>(shape.request.disk.bytes));
}

TEST(PlanSpeed, TheSlowerOfMemoryAndLinkIsTheCeiling) {
  StepShape shape = glm();
  shape.weight_bytes = [](double) { return 4.8e10; };  // 10 ms
  const StepCost few = host_step(shape, 1 << 20, 1, 0.01);
  EXPECT_EQ(few.seconds(), few.memory_seconds);
  shape.weight_bytes = [](double) { return 0.0; };
  const StepCost many = host_step(shape, 1 << 20, 8, 1.0);
  EXPECT_EQ(many.seconds(), many.link_seconds);
}

TEST(PlanSpeed, WithoutABandwidthThereIsNoCeiling) {
  StepShape shape = glm();
  shape.bandwidths = {};
  EXPECT_FALSE(resident_step(shape, 4096, 1).tokens_per_second().has_value());
  shape.bandwidths.disk = 6e9;
  EXPECT_TRUE(disk_step(shape, 4096, 1, 1.0).tokens_per_second().has_value());
}

}  // namespace
}  // namespace hisparse::plan
