// What the ledger says of the controller's own memory holds: every allocation is counted here.
#include "kv/metadata.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace {

std::atomic<std::int64_t> live_bytes{0};

}  // namespace

void* operator new(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  live_bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
  return memory;
}
void operator delete(void* memory) noexcept {
  live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace hisparse::kv {
namespace {

using Tokens = std::vector<base::TokenId>;

// Prompts of their own until nothing fits any more; every page is full, published, and held.
void fill(LifecycleController& controller, std::int64_t sequences, std::int64_t pages) {
  const BlockKey root = root_key({"tenant", "model", "f32"});
  const std::int64_t tokens = pages * controller.config().page_tokens;
  std::vector<TransferOp> ops;
  const auto take = [&](const KvCommit& commit) {
    for (const auto* some : {&commit.transfers.restores, &commit.transfers.demotions}) {
      ops.insert(ops.end(), some->begin(), some->end());
    }
  };
  for (std::int64_t id = 0; id < sequences; ++id) {
    const base::SequenceId sequence(id);
    PlanBuilder admission = controller.plan();
    ASSERT_TRUE(admission.admit(sequence, root, {}, tokens));
    take(controller.commit(std::move(admission).finish()));
    while (controller.written_tokens(sequence) < tokens) {
      PlanBuilder growth = controller.plan();
      const std::int64_t page_tokens = controller.config().page_tokens;
      const std::int64_t end = controller.written_tokens(sequence) + page_tokens;
      const Grant grant = growth.extend(sequence, end);
      take(controller.commit(std::move(growth).finish()));
      if (grant == Grant::kNow) {
        const Tokens page(static_cast<std::size_t>(page_tokens), static_cast<int>(id + 1));
        take(controller.written(sequence, page));
      }
      for (const TransferOp& op : std::exchange(ops, {})) {
        controller.apply({op.id, absl::OkStatus()});
      }
    }
    std::vector<PageMass> masses;
    for (std::int32_t page = 0; page < pages; ++page) masses.push_back({page, 0.1f});
    controller.observe(sequence, masses);
  }
}

TEST(Metadata, AFullControllerHoldsNoMoreThanTheLedgerSays) {
  constexpr std::int64_t kSequences = 40;
  constexpr std::int64_t kPages = 25;
  ControllerConfig off = {
      .page_tokens = 16, .resident_slots = 200, .host_slots = 300, .disk_slots = 500};
  ControllerConfig heat = off;
  heat.heat_window = 4096;
  ControllerConfig kept = off;
  kept.persistence = Persistence::kOn;
  for (const ControllerConfig& config : {off, heat, kept}) {
    const std::int64_t stated =
        metadata_bytes(config, {.sequences = kSequences, .pages_per_sequence = kPages});
    const std::int64_t before = live_bytes;
    LifecycleController controller(config);
    fill(controller, kSequences, kPages);
    ASSERT_EQ(controller.stats().referenced, kSequences * kPages);
    const std::int64_t held = live_bytes - before;
    EXPECT_LE(held, stated);
    EXPECT_GT(2 * held, stated) << "and it is no wild guess";
  }
}

TEST(Metadata, ASlotMoreOfAnyTierTakesItsShare) {
  ControllerConfig config = {.resident_slots = 3, .heat_window = 100};
  const std::int64_t before = metadata_bytes(config, {});
  config.disk_slots = 7;
  EXPECT_EQ(metadata_bytes(config, {}), before + 7 * metadata_bytes_per_slot(config));
}

}  // namespace
}  // namespace hisparse::kv
