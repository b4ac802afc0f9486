// What both kinds of plan have in common (internal).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/plan_report.h"
#include "config/server_config.h"

namespace hisparse::app {

// "--memory-gbps" and the like, where they are given.
void override_bandwidths(const config::PlanSettings& settings, plan::Bandwidths& bandwidths);

// The last part of a path.
std::string base_name(const std::string& path);

// 1, 8 and `most`, without what is more than that; empty for less than 1.
std::vector<std::int64_t> batches_up_to(std::int64_t most);

// The flags of `serve` for the tiers, and for what else differs from the defaults.
void add_engine_flags(const config::EngineSettings& engine, std::vector<std::string>& flags);

// What the table of contexts does not say by itself.
void add_fit_notes(PlanReport& report);

// Where a disk is planned whose bandwidth nobody gave.
void add_disk_note(const config::PlanSettings& settings, PlanReport& report);

}  // namespace hisparse::app
