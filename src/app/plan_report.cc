#include "app/plan_report.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>

namespace hisparse::app {
namespace {

using Row = std::vector<std::string>;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGB = 1e9;

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// Three figures or so: 0.57, 10.3, 107, 35300.
std::string rounded(double value) {
  return number(value < 1.0 ? "%.2f" : value < 100.0 ? "%.1f" : "%.0f", value);
}

std::string rounded(const std::optional<double>& value) { return value ? rounded(*value) : "?"; }

std::string gib(std::int64_t bytes) {
  return number("%.2f GiB", static_cast<double>(bytes) / kGiB);
}

std::string gbps(double bandwidth) {
  return bandwidth > 0.0 ? rounded(bandwidth / kGB) + " GB/s" : "unknown";
}

std::string percent(double share) { return number("%.0f %%", 100.0 * share); }

// A Markdown table; the first row holds the titles, the first column is text.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (std::size_t line = 0; line < rows.size(); ++line) {
    text += "|";
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string& cell = rows[line][i];
      const std::string blanks(widths[i] - cell.size(), ' ');
      text += " " + (i == 0 ? cell + blanks : blanks + cell) + " |";
    }
    text += "\n";
    if (line > 0) continue;
    text += "|";
    for (std::size_t i = 0; i < widths.size(); ++i) {
      text += std::string(widths[i] + 1, '-') + (i == 0 ? "-|" : ":|");
    }
    text += "\n";
  }
  return text;
}

std::string render_header(const PlanReport& report) {
  const PlanModel& model = report.model;
  std::string text = "hisparse " + report.version + " plan: " + model.name + " on " +
                     report.machine + ". Arithmetic, nothing is measured.\n";
  text += model.architecture + ": " + std::to_string(model.layers) + " layers" +
          (model.mtp_layers > 0 ? " and " + std::to_string(model.mtp_layers) + " MTP" : "") + ", " +
          rounded(static_cast<double>(model.parameters) / 1e9) + " B parameters, " +
          rounded(model.active_parameters / 1e9) + " B of them read for a token; weights " +
          model.weight_dtype + ", " + gib(model.weight_bytes) + " as one copy\n";
  const plan::Bandwidths& speeds = report.bandwidths;
  text += "bandwidths: device memory " + gbps(speeds.memory);
  if (report.memory.scope == MemoryScope::kDevice) {
    text +=
        ", host to device " + gbps(speeds.stream) + " (scattered rows " + gbps(speeds.gather) + ")";
  }
  return text + ", disk " + gbps(speeds.disk) + "\n";
}

std::string render_memory(const PlanReport& report) {
  const PlanMemory& memory = report.memory;
  std::string text = memory.scope == MemoryScope::kDevice
                         ? "Memory of each device (of " + std::to_string(report.ranks) + ")"
                         : "Memory over all ranks";
  if (memory.limit > 0) text += ", of which " + gib(memory.limit) + " may be taken";
  std::vector<Row> rows = {{"owner", "bytes", "GiB"}};
  for (const auto& [owner, bytes] : memory.owners) {
    rows.push_back(
        {owner, std::to_string(bytes), number("%.3f", static_cast<double>(bytes) / kGiB)});
  }
  return text + ":\n\n" + table(rows);
}

std::string render_rows(const PlanReport& report) {
  std::string text = "KV rows: " + report.model.kv_cache_dtype + ", " +
                     std::to_string(report.shape.rows.rank()) + " bytes a token on each rank";
  for (const plan::PlannedGroup& planned : report.groups) {
    const kv::PageLayout layout(planned.group, 1);
    text += "; " + planned.group.name + " " + std::to_string(layout.layer_bytes()) + " x " +
            std::to_string(layout.layers()) + " layers" +
            (planned.group.sharding == kv::Sharding::kReplicated ? ", the same on every rank" : "");
  }
  text += "\n";
  if (report.hot_rows > 0) {
    text += "A spilled request keeps its index keys and " + std::to_string(report.hot_rows) +
            " hot rows a layer on each device: " +
            number("%.0f MiB", static_cast<double>(report.shape.hot_bytes) / kMiB) + " of rows\n";
  }
  text +=
      "Lower tiers: host " + gib(report.budget.host) + ", disk " + gib(report.budget.disk) + "\n";
  return text;
}

std::string render_contexts(const PlanReport& report) {
  std::vector<Row> rows = {{"tokens a request", "resident only", "spilled: device", "spilled: host",
                            "spilled: disk", "together", "limit", "GiB below"}};
  for (const plan::ContextCapacity& line : report.contexts) {
    const std::string together =
        std::to_string(line.requests) +
        (line.spilled > 0 ? " (" + std::to_string(line.spilled) + " spilled)" : "");
    rows.push_back({std::to_string(line.context), rounded(line.resident),
                    report.hot_rows > 0 ? rounded(line.device_limit) : "-",
                    rounded(line.host_limit), rounded(line.disk_limit), together,
                    std::string(plan::name_of(line.limit)),
                    report.hot_rows > 0 ? number("%.0f", line.lower_needed / kGiB) : "-"});
  }
  std::string text =
      "Requests at the same time (each limit alone, then together; GiB below: what lower tiers "
      "must "
      "hold before device memory binds):\n\n" +
      table(rows);
  const plan::KvUse& use = report.use;
  text += "\nAt " + std::to_string(report.contexts.back().context) + " tokens: resident pages " +
          gib(use.resident_pages) + ", index keys of spilled requests " + gib(use.index_keys) +
          ", hot rows " + gib(use.hot_rows) + " on each rank; host " + gib(use.host) + ", disk " +
          gib(use.disk) + "\n";
  return text;
}

std::string render_steps(const PlanReport& report) {
  std::vector<Row> rows = {{"rows come from", "batch", "GB of memory", "GB of link or disk",
                            "ms a step", "tok/s a request", "tok/s in all"}};
  for (const plan::StepCost& step : report.steps) {
    std::optional<double> ms = step.seconds();
    if (ms) *ms *= 1e3;
    std::optional<double> all = step.tokens_per_second();
    if (all) *all *= static_cast<double>(step.batch);
    const bool partly = report.hot_rows > 0 && step.tier != plan::Tier::kResident;
    rows.push_back({std::string(plan::name_of(step.tier)) +
                        (partly ? ", " + percent(step.miss) + " of the selected" : ""),
                    std::to_string(step.batch), rounded(step.memory_bytes / kGB),
                    rounded(step.link_bytes / kGB), rounded(ms), rounded(step.tokens_per_second()),
                    rounded(all)});
  }
  return "Ceilings of decode at " + std::to_string(report.max_model_len) +
         " tokens. All rows of the batch come from the tier named; bytes over bandwidths, the "
         "slower "
         "of memory and link; no compute, no latency:\n\n" +
         table(rows);
}

std::string render_misses(const PlanReport& report) {
  if (report.misses.empty()) return "";
  std::vector<Row> rows = {{"misses", "batch", "rows a layer", "us a layer, streamed",
                            "us a layer, gathered", "ms a step", "tok/s a request"}};
  for (const plan::MissCost& cost : report.misses) {
    rows.push_back({percent(cost.miss), std::to_string(cost.batch),
                    number("%.0f", cost.rows_per_layer), rounded(cost.stream_us_per_layer),
                    rounded(cost.gather_us_per_layer), rounded(cost.gather_ms_per_step),
                    number("%.0f", cost.tokens_per_second)});
  }
  return "\nWhat misses cost on one device's link alone (not overlapped):\n\n" + table(rows);
}

// One word for a POSIX shell.
std::string shell_word(const std::string& value) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./:=,@%+";
  if (!value.empty() && value.find_first_not_of(kPlain) == std::string::npos) return value;
  std::string word = "'";
  for (const char letter : value)
    word += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return word + "'";
}

std::string shell_flag(const std::string& flag) {
  const std::size_t blank = flag.find(' ');
  if (blank == std::string::npos) return flag;
  return flag.substr(0, blank + 1) + shell_word(flag.substr(blank + 1));
}

std::string render_end(const PlanReport& report) {
  std::string text = "\nFlags for hisparse serve:\n ";
  for (const std::string& flag : report.flags) text += " " + shell_flag(flag);
  text += "\n";
  for (const std::string& reason : report.missing) text += "Not in this build: " + reason + "\n";
  for (const std::string& note : report.notes) text += "Note: " + note + "\n";
  return text;
}

}  // namespace

std::string render_plan(const PlanReport& report) {
  return render_header(report) + "\n" + render_memory(report) + "\n" + render_rows(report) + "\n" +
         render_contexts(report) + "\n" + render_steps(report) + render_misses(report) +
         render_end(report);
}

}  // namespace hisparse::app
