// Every figure of reference/hisparse.md 5.2 and 5.4, and which limit binds.
#include <cmath>

#include "tests/unit/plan_fixture.h"

namespace hisparse::plan {
namespace {

using testing::HasSubstr;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kMiB = 1024.0 * 1024.0;
constexpr std::int64_t kMillion = std::int64_t{1} << 20;

// The table's rounding: three figures above 1.
void expect_printed(double value, double printed) {
  const double unit = printed >= 20.0 ? 1.0 : printed >= 1.0 ? 0.1 : 0.01;
  EXPECT_NEAR(value, printed, 0.5 * unit + 1e-9);
}

GpuPlan plan_of(const GpuRequest& request) {
  const absl::StatusOr<GpuPlan> plan = plan_gpus(request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : GpuPlan();
}

ContextCapacity capacity(const GpuRequest& request, std::int64_t context) {
  const GpuPlan plan = plan_of(request);
  return fit(plan.shape, plan.budget, context, 0);
}

// 5.2, "1M tokens".
TEST(PlanCapacity, AMillionTokensTakeWhatTheTableSays) {
  const auto gib = [](const Fields& fields, RowType rows, std::int64_t TokenRows::*part) {
    GpuRequest request = assumed_request(fields);
    request.rows = rows;
    return static_cast<double>(kMillion * plan_of(request).shape.rows.*part) / kGiB;
  };
  EXPECT_NEAR(gib(glm_5_3(), RowType::kFp8, &TokenRows::spills), 49.97, 0.005);
  EXPECT_NEAR(gib(glm_5_3(), RowType::kBf16, &TokenRows::spills), 87.75, 0.005);
  EXPECT_NEAR(gib(glm_5_1(), RowType::kFp8, &TokenRows::stays), 10.05, 0.005);
  EXPECT_NEAR(gib(glm_5_3(), RowType::kFp8, &TokenRows::stays), 2.71, 0.005);
  EXPECT_NEAR(gib(glm_5_1(), RowType::kFp8, &TokenRows::spills) +
                  gib(glm_5_1(), RowType::kFp8, &TokenRows::stays),
              60.02, 0.01);
}

// 5.2, "hot buffer per request": 2, 3 and 5 times top-k.
TEST(PlanCapacity, HotRowsTakeWhatTheTableSays) {
  struct HotLine {
    std::int64_t times;
    double fp8;
    double bf16;
  };
  for (const HotLine& line : {HotLine{2, 200, 351}, {3, 300, 527}, {5, 500, 878}}) {
    GpuRequest request = assumed_request(glm_5_3());
    request.hot_rows = line.times * 2048;
    EXPECT_NEAR(static_cast<double>(plan_of(request).shape.hot_bytes) / kMiB, line.fp8, 0.51);
    request.rows = RowType::kBf16;
    EXPECT_NEAR(static_cast<double>(plan_of(request).shape.hot_bytes) / kMiB, line.bf16, 0.51);
  }
  EXPECT_EQ(plan_of(assumed_request(glm_5_3())).hot_rows, 2 * 2048);
}

// 5.4: context, resident only, spilled by device memory, the ratio, the ratio of 5.1.
struct TableLine {
  std::int64_t context;
  double resident;
  double spilled;
  double ratio;
  double ratio_5_1;
};
constexpr TableLine kTable[] = {{32 << 10, 18.2, 107, 5.9, 3.7},
                                {64 << 10, 9.1, 82, 9.0, 4.6},
                                {128 << 10, 4.6, 56, 12.3, 5.2},
                                {256 << 10, 2.3, 34, 15.1, 5.5},
                                {1 << 20, 0.57, 10.3, 18.2, 5.9}};

TEST(PlanCapacity, RequestsOfEachContextAreThoseOfTheTable) {
  for (const TableLine& line : kTable) {
    SCOPED_TRACE(line.context);
    const ContextCapacity glm_5_2 = capacity(assumed_request(glm_5_3()), line.context);
    expect_printed(glm_5_2.resident, line.resident);
    expect_printed(glm_5_2.device_limit, line.spilled);
    EXPECT_NEAR(glm_5_2.device_limit / glm_5_2.resident, line.ratio, 0.051);
    // The lengths of the table go beyond what 5.1 was made for; its rows do not care.
    const ContextCapacity glm_5 = capacity(assumed_request(glm_5_1()), line.context);
    EXPECT_NEAR(glm_5.device_limit / glm_5.resident, line.ratio_5_1, 0.051);
  }
  EXPECT_NEAR(capacity(assumed_request(glm_5_1()), kMillion).device_limit, 2.9, 0.05);
}

// 5.4, "host side".
TEST(PlanCapacity, HostMemoryHoldsWhatTheTableSays) {
  struct HostLine {
    std::int64_t gib;
    double million_tokens;
    double within;
  };
  for (const HostLine& line : {HostLine{384, 8.06, 0.005}, {512, 10.7, 0.05}, {1024, 21.5, 0.05}}) {
    GpuRequest request = assumed_request(glm_5_3());
    request.host_bytes = line.gib << 30;
    const ContextCapacity capacity_1m = capacity(request, kMillion);
    EXPECT_NEAR(capacity_1m.host_limit * static_cast<double>(kMillion) / 1e6, line.million_tokens,
                line.within);
  }
}

TEST(PlanCapacity, At1MWith384GiBHostMemoryBinds) {
  GpuRequest request = assumed_request(glm_5_3());
  request.host_bytes = std::int64_t{384} << 30;
  ContextCapacity result = capacity(request, kMillion);
  EXPECT_NEAR(result.host_limit, 7.7, 0.05);
  EXPECT_EQ(result.limit, Limit::kHost);
  EXPECT_EQ(result.requests, 7);
  EXPECT_EQ(result.spilled, 7);  // not one fits resident
  request.host_bytes = std::int64_t{1024} << 30;
  result = capacity(request, kMillion);
  EXPECT_EQ(result.limit, Limit::kDevice);
  EXPECT_EQ(result.requests, 10);
}

TEST(PlanCapacity, HostMemoryBelowOneRequestIsWhatBinds) {
  GpuRequest request = assumed_request(glm_5_3());
  EXPECT_EQ(capacity(request, kMillion).limit, Limit::kHost);  // none at all
  request.host_bytes = std::int64_t{45} << 30;
  ContextCapacity result = capacity(request, kMillion);
  EXPECT_NEAR(result.host_limit, 0.90, 0.005);
  EXPECT_EQ(result.requests, 0);
  EXPECT_EQ(result.limit, Limit::kHost);
  request.host_bytes = std::int64_t{145} << 30;
  EXPECT_EQ(capacity(request, kMillion).requests, 2);
  request.host_bytes = 0;
  request.disk_bytes = std::int64_t{45} << 30;
  EXPECT_EQ(capacity(request, kMillion).limit, Limit::kDisk);
}

// The label against the arithmetic itself, with host memory that grows in steps of 7 GiB.
TEST(PlanCapacity, MoreHostMemoryHelpsOnlyWhereItIsTheLimit) {
  for (const std::int64_t slab : {1, 3, 10, 30}) {
    GpuRequest request = assumed_request(glm_5_3());
    request.kv_bytes = 8 * (slab << 30);
    const GpuPlan plan = plan_of(request);
    for (const std::int64_t context : {2048, 8192, 32'768, 131'072, 400'000, 1'048'576}) {
      for (std::int64_t gib = 0; gib < 600; gib += 7) {
        SCOPED_TRACE(testing::Message() << slab << " " << context << " " << gib);
        const auto with = [&](std::int64_t host_gib) {
          const KvBudget budget = {.device = plan.budget.device, .host = host_gib << 30, .disk = 0};
          return fit(plan.shape, budget, context, 0);
        };
        const ContextCapacity now = with(gib);
        if (with(gib + 100).requests > now.requests) {
          EXPECT_EQ(now.limit, Limit::kHost);
        }
        const bool endless_helps = with(std::int64_t{1} << 20).requests > now.requests;
        EXPECT_EQ(now.limit, endless_helps ? Limit::kHost : Limit::kDevice);
      }
    }
  }
}

// 5.4: "With MTP3 (5x rows) at 142K the ratio is 8.3x" counts the rows of 78 layers; with the MTP
// layer's own rows it is 8.2x.
TEST(PlanCapacity, DraftTokensInflateTheHotRows) {
  GpuRequest request = assumed_request(glm_5_3());
  request.hot_rows = 5 * 2048;
  ContextCapacity result = capacity(request, 142'000);
  EXPECT_NEAR(result.device_limit / result.resident, 8.3, 0.051);
  request.hot_rows = 0;
  request.draft_tokens = 3;
  const GpuPlan plan = plan_of(request);
  EXPECT_EQ(plan.hot_rows, 5 * 2048);
  EXPECT_EQ(plan.shape.rows.rank(), 54'728);
  result = fit(plan.shape, plan.budget, 142'000, 0);
  EXPECT_NEAR(result.device_limit / result.resident, 8.2, 0.051);
}

// kv_science.md section 0: MTP rows with 4096 hot rows.
TEST(PlanCapacity, RatiosOfOneRequestWithTheMtpLayer) {
  GpuRequest request = assumed_request(glm_5_3());
  request.draft_tokens = 1;
  request.hot_rows = 4096;
  EXPECT_NEAR(static_cast<double>(plan_of(request).shape.hot_bytes) / 1e6, 212, 0.5);
  const auto ratio = [&request](std::int64_t context) {
    const ContextCapacity result = capacity(request, context);
    return result.device_limit / result.resident;
  };
  EXPECT_NEAR(ratio(kMillion), 17.6, 0.05);
  EXPECT_NEAR(ratio(128 << 10), 12, 0.5);
  EXPECT_NEAR(ratio(64 << 10), 8.9, 0.05);
}

TEST(PlanCapacity, NoMoreIsSpilledThanMustBe) {
  GpuRequest request = assumed_request(glm_5_3());
  request.host_bytes = std::int64_t{2048} << 30;
  const GpuPlan plan = plan_of(request);
  const std::int64_t context = 64 << 10;
  const ContextCapacity ten = fit(plan.shape, plan.budget, context, 10);
  EXPECT_EQ(ten.requests, 10);
  EXPECT_EQ(ten.spilled, 1);  // nine fit
  EXPECT_EQ(ten.limit, Limit::kSequences);
  const ContextCapacity nine = fit(plan.shape, plan.budget, context, 9);
  EXPECT_EQ(nine.spilled, 0);
  // Whatever the numbers, what was counted fits.
  for (std::int64_t n = 1; n <= 90; ++n) {
    const ContextCapacity some = fit(plan.shape, plan.budget, context, n);
    const std::int64_t bytes =
        (some.requests - some.spilled) * context * plan.shape.rows.rank() +
        some.spilled * (context * plan.shape.rows.stays + plan.shape.hot_bytes);
    EXPECT_LE(bytes, plan.budget.device) << n;
    EXPECT_GE(some.spilled, 0) << n;
    EXPECT_EQ(some.requests, std::min<std::int64_t>(n, 82)) << n;
  }
}

TEST(PlanCapacity, AShortRequestIsNeverSpilled) {
  GpuRequest request = assumed_request(glm_5_3());
  request.host_bytes = std::int64_t{2048} << 30;
  const ContextCapacity result = capacity(request, 2048);  // fewer rows than a hot buffer
  EXPECT_EQ(result.spilled, 0);
  EXPECT_EQ(result.requests, static_cast<std::int64_t>(std::floor(result.resident)));
}

TEST(PlanCapacity, TheDiskHoldsWhatHostMemoryDoesNot) {
  GpuRequest request = assumed_request(glm_5_3());
  request.host_bytes = std::int64_t{128} << 30;
  request.disk_bytes = std::int64_t{256} << 30;
  ContextCapacity result = capacity(request, kMillion);
  EXPECT_EQ(result.limit, Limit::kDisk);
  EXPECT_EQ(result.requests, 7);  // 2.56 in host memory and 5.0 on disk, whose slices are padded
  const GpuPlan plan = plan_of(request);
  EXPECT_EQ(plan.shape.disk.bytes % 4096, 0);
  EXPECT_GE(plan.shape.disk.bytes, 64 * 51'168);
  EXPECT_LE(plan.use.host, request.host_bytes);
  EXPECT_LE(plan.use.disk, request.disk_bytes);
  EXPECT_GT(plan.use.disk, 0);
}

TEST(PlanCapacity, PagesOfADenseModelLieInAnyTier) {
  GpuRequest request = assumed_request(qwen2_72b());
  request.rows = RowType::kBf16;
  request.weights = WeightFormat::kBf16;
  const std::int64_t context = 128 << 10;
  ContextCapacity result = capacity(request, context);
  EXPECT_NEAR(result.resident, 240.0 * kGiB / (131'072.0 * 327'680), 1e-9);
  EXPECT_EQ(result.requests, 6);
  EXPECT_EQ(result.limit, Limit::kDevice);
  request.host_bytes = std::int64_t{400} << 30;  // ten more
  result = capacity(request, context);
  EXPECT_EQ(result.requests, 16);
  EXPECT_EQ(result.spilled, 10);
  EXPECT_EQ(result.limit, Limit::kTiers);
}

TEST(PlanCapacity, MemoryOfADeviceAddsUp) {
  GpuRequest request = assumed_request(glm_5_3());
  request.kv_bytes = 0;
  const GpuPlan plan = plan_of(request);
  const DeviceMemory& memory = plan.memory;
  EXPECT_EQ(memory.weights + memory.activations + memory.runtime + memory.kv, memory.limit);
  EXPECT_GT(static_cast<double>(memory.kv) / kGiB, 30.0);
  EXPECT_EQ(plan.budget.device, memory.kv);
  EXPECT_EQ(plan.max_model_len, kMillion);
  EXPECT_EQ(plan.contexts.back().context, kMillion);
}

TEST(PlanCapacity, WhatDoesNotFitIsRefusedWithNumbers) {
  const auto message = [](const GpuRequest& request) {
    return std::string(plan_gpus(request).status().message());
  };
  GpuRequest request = assumed_request(glm_5_3());
  request.kv_bytes = 8 * (std::int64_t{60} << 30);
  EXPECT_THAT(message(request), HasSubstr("60.0 GiB for KV pages: lower --kv-cache-memory-bytes"));
  request.kv_bytes = 0;
  request.weights = WeightFormat::kBf16;
  EXPECT_THAT(message(request), HasSubstr("use more GPUs, --weight-dtype fp8"));
  EXPECT_EQ(plan_gpus(request).status().code(), absl::StatusCode::kResourceExhausted);
  request = assumed_request(glm_5_1());
  request.max_model_len = kMillion;
  EXPECT_THAT(message(request), HasSubstr("more than the 202752 tokens"));
  request = assumed_request(llama3_8b());
  request.draft_tokens = 1;
  EXPECT_THAT(message(request), HasSubstr("MTP"));
}

TEST(PlanCapacity, ContextsEndWithTheLongest) {
  EXPECT_THAT(contexts_up_to(1'000'000),
              testing::ElementsAre(32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1'000'000));
  EXPECT_THAT(contexts_up_to(1500), testing::ElementsAre(1024, 1500));
  EXPECT_THAT(contexts_up_to(1), testing::ElementsAre(1));
}

TEST(PlanMachine, NamesAreReadOrRefused) {
  const Machine machine = *parse_machine("8xh200");
  EXPECT_EQ(machine.count, 8);
  EXPECT_EQ(machine.device, "H200");
  EXPECT_EQ(machine.bandwidths.stream, 55e9);
  EXPECT_EQ(machine.bandwidths.gather, 37e9);
  EXPECT_EQ(machine.bandwidths.memory, 4.8e12);
  EXPECT_EQ(parse_machine("H100")->count, 1);
  for (const char* bad : {"", "x", "8x", "xH200", "0xH200", "-1xH200", "65xH200", "8xA100",
                          "8 H200", "99999999999xH200", "8xcpu", "1x8xH200"}) {
    EXPECT_THAT(std::string(parse_machine(bad).status().message()), HasSubstr("8xH200")) << bad;
  }
}

}  // namespace
}  // namespace hisparse::plan
