// The invariants of README.md, recomputed from scratch.
#pragma once

#include <optional>
#include <string>

#include "kv/controller_state.h"

namespace hisparse::kv {

// The first violation in words, or nothing. Trusts no count or set that the state keeps.
std::optional<std::string> find_violation(const ControllerState& state);

}  // namespace hisparse::kv
