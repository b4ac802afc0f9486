#include "engine/kv_trace.h"

#include <spdlog/spdlog.h>

namespace hisparse::engine {

void trace(const kv::TransferPlan& plan) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  for (const auto* ops : {&plan.restores, &plan.demotions}) {
    for (const kv::TransferOp& op : *ops) {
      spdlog::debug("transfer {}: block {} from {} slot {} to {} slot {} ({})", op.id.value(),
                    op.block.value(), kv::name_of(op.from.tier), op.from.slot.value(),
                    kv::name_of(op.to.tier), op.to.slot.value(), kv::name_of(op.reason));
    }
  }
}

void trace(const kv::KvPlan& plan) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  for (const base::BlockId block : plan.evictions) {
    spdlog::debug("block {} leaves the cache", block.value());
  }
  for (const base::BlockId block : plan.drops) {
    spdlog::debug("block {} gives up its resident copy", block.value());
  }
  for (const base::BlockId block : plan.host_drops) {
    spdlog::debug("block {} gives up its host copy", block.value());
  }
}

void trace(const std::optional<kv::Replan>& replan) {
  if (!replan) return;
  spdlog::debug("re-plan {}: {} observations of pages, {} more were lost", replan->number,
                replan->observations, replan->lost);
}

}  // namespace hisparse::engine
