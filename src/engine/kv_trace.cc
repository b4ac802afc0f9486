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

void trace(const std::optional<kv::Replan>& replan) {
  if (!replan) return;
  spdlog::debug("re-plan {}: {} observations of pages, {} more were lost", replan->number,
                replan->observations, replan->lost);
}

}  // namespace hisparse::engine
