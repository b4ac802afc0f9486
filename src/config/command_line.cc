#include "config/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include "config/option_groups.h"
#include "config/yaml_options.h"

namespace hisparse::config {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

// " (did you mean --port?)", or nothing when no option is near.
std::string suggestion(const std::string& argument, const CLI::App& command) {
  constexpr std::size_t kFarthest = 4;
  const std::string name = argument.substr(0, argument.find('='));
  std::string best;
  std::size_t best_distance = kFarthest + 1;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& long_name : option->get_lnames()) {
      const std::size_t distance = edit_distance(name, "--" + long_name);
      if (distance < best_distance) {
        best_distance = distance;
        best = long_name;
      }
    }
  }
  return best.empty() ? "" : " (did you mean --" + best + "?)";
}

struct Subcommand {
  Command command;
  CLI::App* app;
  std::string config_file;  // stays empty where there is no --config
};

// The subcommands with their options, which write into `settings`. A deque: options hold references
// into it.
std::deque<Subcommand> add_subcommands(CLI::App& app, Settings& settings) {
  std::deque<Subcommand> subcommands;
  const auto add = [&](Command command, const char* name, const char* help) -> Subcommand& {
    return subcommands.emplace_back(
        Subcommand{.command = command, .app = app.add_subcommand(name, help), .config_file = ""});
  };
  const auto add_with_engine = [&](Subcommand& subcommand, EngineSettings& engine) {
    add_engine_options(*subcommand.app, engine, subcommand.config_file);
    // With a callback of its own a subcommand reads the environment only when it was chosen.
    subcommand.app->parse_complete_callback([] {});
    return subcommand.app;
  };
  // One prompt runs alone.
  settings.generate.engine.max_num_seqs = 1;
  // A measurement must not find its own prompts.
  settings.bench.engine.enable_prefix_caching = false;
  Subcommand& serve =
      add(Command::kServe, "serve", "Serve a model over an OpenAI-compatible HTTP API");
  add_serve_options(*add_with_engine(serve, settings.serve.engine), settings.serve);
  Subcommand& generate =
      add(Command::kGenerate, "generate", "Answer one prompt on standard output");
  add_generate_options(*add_with_engine(generate, settings.generate.engine), settings.generate);
  Subcommand& bench = add(Command::kBench, "bench", "Measure the speed of a model, offline");
  add_bench_options(*add_with_engine(bench, settings.bench.engine), settings.bench);
  Subcommand& plan = add(Command::kPlan, "plan",
                         "Compute what fits on a machine, and how fast it can be at the most");
  add_plan_options(*add_with_engine(plan, settings.plan.engine), settings.plan);
  add(Command::kVersion, "version", "Print the version");
  return subcommands;
}

std::string find_conflict(const Settings& settings) {
  switch (settings.command) {
    case Command::kServe:
      return find_conflict(settings.serve);
    case Command::kGenerate:
      return find_conflict(settings.generate);
    case Command::kBench:
      return find_conflict(settings.bench);
    case Command::kPlan:
      return find_conflict(settings.plan);
    case Command::kVersion:
      return "";
  }
  return "";
}

Exit fail(std::ostream& errors, const std::string& message) {
  errors << "hisparse: " << message << "\nRun hisparse --help for more.\n";
  return Exit{kUsageError};
}

// Flags and environment. The end of the program, if it is to end here.
std::optional<Exit> parse_arguments(CLI::App& app, std::span<const char* const> arguments,
                                    std::ostream& out, std::ostream& errors) {
  const auto scope = [&app]() -> const CLI::App& {
    const auto chosen = app.get_subcommands();
    return chosen.empty() ? app : *chosen.front();
  };
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::CallForHelp&) {
    out << scope().help();
    return Exit{0};
  } catch (const CLI::ExtrasError& error) {
    const std::vector<std::string> extras = scope().remaining();
    const std::string argument = extras.empty() ? error.what() : extras.front();
    return fail(errors, "unknown argument '" + argument + "'" + suggestion(argument, scope()));
  } catch (const CLI::ParseError& error) {
    return fail(errors, error.what());
  }
  return std::nullopt;
}

}  // namespace

std::variant<Settings, Exit> parse_command_line(std::span<const char* const> arguments,
                                                std::ostream& out, std::ostream& errors) {
  Settings settings;
  CLI::App app("hisparse serves large language models with contexts longer than memory holds.",
               "hisparse");
  app.require_subcommand(1);
  const std::deque<Subcommand> subcommands = add_subcommands(app, settings);
  if (const std::optional<Exit> exit = parse_arguments(app, arguments, out, errors)) return *exit;

  const auto chosen = std::find_if(
      subcommands.begin(), subcommands.end(),
      [&app](const Subcommand& subcommand) { return app.got_subcommand(subcommand.app); });
  settings.command = chosen->command;
  if (!chosen->config_file.empty()) {
    if (absl::Status status = apply_yaml_file(chosen->config_file, *chosen->app); !status.ok()) {
      return fail(errors, std::string(status.message()));
    }
  }
  const std::vector<std::int32_t>& batches = settings.bench.batch_sizes;
  if (!batches.empty()) {
    settings.bench.engine.max_num_seqs = *std::max_element(batches.begin(), batches.end());
  }
  if (settings.command == Command::kPlan) {
    const std::string conflict = resolve_engine(*chosen->app, settings.plan);
    if (!conflict.empty()) return fail(errors, conflict);
  }
  if (const std::string conflict = find_conflict(settings); !conflict.empty()) {
    return fail(errors, conflict);
  }
  return settings;
}

}  // namespace hisparse::config
