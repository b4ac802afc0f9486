// Which query a probe looks with: rows of a step that are injected are not computed.
#include "engine/page_observer.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/cpu_device.h"

namespace hisparse::engine {
namespace {

TEST(PageObserver, LooksWithTheLastComputedRow) {
  base::ThreadPool pool(1);
  auto device = device::make_cpu_device(pool, {});
  ASSERT_TRUE(device.ok()) << device.status();
  const auto stream = (*device)->create_stream();
  auto observer = PageObserver::create({.device = device->get(),
                                        .rows = sched::kMaxObservations,
                                        .pages_per_sequence = 8,
                                        .page_tokens = 16,
                                        .layers = 2});
  ASSERT_TRUE(observer.ok()) << observer.status();
  // A prompt of which 20 rows are injected, and a decoding request behind it.
  sched::StepPlan plan;
  plan.rows = {
      {.sequence_slot = 0, .first = 0, .count = 21, .tokens_begin = 0, .injected = 20},
      {.sequence_slot = 1, .first = 40, .count = 1, .tokens_begin = 21, .injected = 0},
  };
  plan.tokens.assign(22, 7);
  plan.observations = {{.row = 1, .turn = 3}, {.row = 0, .turn = 4}};
  const std::vector<std::int32_t> last_rows = {0, 1};  // two rows are computed
  std::vector<std::map<std::int32_t, base::SlotId>> on_disk(2);
  on_disk[1].emplace(1, base::SlotId(5));
  const auto probes = (*observer)->begin(plan, last_rows, on_disk, *stream);
  ASSERT_EQ(probes.size(), 2U);
  EXPECT_EQ(probes[0].row, 1);
  EXPECT_EQ(probes[0].sequence_slot, 1);
  EXPECT_EQ(probes[0].position, 40);
  EXPECT_EQ(probes[0].layer, 1);
  EXPECT_EQ(probes[0].count, 2);  // of three pages one is on disk
  EXPECT_EQ(probes[1].row, 0);
  EXPECT_EQ(probes[1].position, 20);
  EXPECT_EQ(probes[1].layer, 0);
  EXPECT_EQ(probes[1].count, 2);
}

}  // namespace
}  // namespace hisparse::engine
