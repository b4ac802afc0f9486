// What the LifecycleController does, at debug level.
#pragma once

#include <optional>

#include "kv/heat.h"
#include "kv/lifecycle_controller.h"
#include "kv/transfer.h"

namespace hisparse::engine {

void trace(const kv::TransferPlan& plan);  // every move and its reason
void trace(const kv::KvPlan& plan);        // what it gives up
void trace(const std::optional<kv::Replan>& replan);

}  // namespace hisparse::engine
