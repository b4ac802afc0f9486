#include "config/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>
#include <string_view>
#include <vector>

#include "config/yaml_options.h"

namespace hisparse::config {
namespace {

constexpr std::int32_t kMaxBlockSize = 1024;
constexpr std::int32_t kMaxSequences = 4096;
constexpr std::int64_t kMaxModelLength = std::int64_t{1} << 24;
constexpr std::int32_t kMaxThreads = 1024;
constexpr std::int32_t kMaxRanks = 64;
constexpr std::int32_t kMaxPreemptions = 1000;
constexpr std::int32_t kMaxQueued = 1 << 20;
constexpr std::int32_t kMaxTimeoutSeconds = 86400;
constexpr std::int64_t kMaxBodyBytes = std::int64_t{1} << 30;
constexpr std::int64_t kMaxKvBytes = std::int64_t{1} << 50;
constexpr float kMinTopP = 1e-6f;
constexpr float kMaxTemperature = 100.0f;

// HISPARSE_MAX_MODEL_LEN for --max-model-len.
std::string environment_name(const std::string& option) {
  std::string name = "HISPARSE_";
  for (char c : option) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

template <typename T>
CLI::Option* add(CLI::App& command, const std::string& name, T& target, const std::string& help) {
  return command.add_option("--" + name, target, help)
      ->envname(environment_name(name))
      ->capture_default_str();
}

CLI::Option* add_dtype(CLI::App& command, const std::string& name, DTypeChoice& target,
                       const std::string& help) {
  static const std::vector<std::pair<std::string, DTypeChoice>> kNames = {
      {"auto", DTypeChoice::kAuto},     {"f32", DTypeChoice::kF32},
      {"float32", DTypeChoice::kF32},   {"bf16", DTypeChoice::kBF16},
      {"bfloat16", DTypeChoice::kBF16},
  };
  return command.add_option("--" + name, target, help)
      ->envname(environment_name(name))
      ->transform(CLI::CheckedTransformer(kNames).description("auto|f32|bf16"))
      ->default_str("auto");
}

// Sizes in bytes, with an optional unit (KiB, MiB, GiB; kB and so on are powers of 1000).
CLI::Option* add_bytes(CLI::App& command, const std::string& name, std::int64_t& target,
                       const std::string& help) {
  return add(command, name, target, help)->transform(CLI::AsSizeValue(true));
}

void add_engine_options(CLI::App& command, EngineSettings& engine, std::string& config_file) {
  // The positional form is what vLLM's users type.
  command.add_option("--model,model", engine.model, "GGUF file")
      ->envname(environment_name("model"));
  add_dtype(command, "dtype", engine.dtype, "Type of weights and matrix products");
  add_dtype(command, "kv-cache-dtype", engine.kv_cache_dtype,
            "Type of the KV rows; auto: as --dtype");
  add(command, "max-model-len", engine.max_model_len,
      "Longest prompt plus output in tokens; 0: the model's")
      ->check(CLI::Range(std::int64_t{0}, kMaxModelLength));
  add(command, "max-num-batched-tokens", engine.max_num_batched_tokens,
      "Tokens in one step, at least --max-num-seqs")
      ->check(CLI::Range(std::int64_t{1}, kMaxModelLength));
  add(command, "block-size", engine.block_size, "Tokens in a page of the KV cache")
      ->check(CLI::Range(1, kMaxBlockSize));
  add_bytes(
      command, "kv-cache-memory-bytes", engine.kv_cache_memory_bytes,
      "Size of the KV cache (4GiB); 0: by --max-num-seqs and --max-model-len, within free memory")
      ->check(CLI::Range(std::int64_t{0}, kMaxKvBytes));
  command
      .add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", engine.enable_prefix_caching,
                "Keep the KV pages of past prompts for reuse (on unless switched off)")
      ->envname(environment_name("enable-prefix-caching"));
  add(command, "max-preemptions", engine.max_preemptions,
      "How often one request may be preempted and recomputed")
      ->check(CLI::Range(0, kMaxPreemptions));
  add(command, "tensor-parallel-size", engine.tensor_parallel_size, "Ranks that share the model")
      ->check(CLI::Range(1, kMaxRanks));
  add(command, "threads", engine.threads, "Compute threads; 0: the cores this process may use")
      ->check(CLI::Range(0, kMaxThreads));
  add(command, "log-level", engine.log_level, "trace, debug, info, warn, error or off");
  command.add_option("--config", config_file, "YAML file of options, by their long names")
      ->envname(environment_name("config"));
}

void add_serve_options(CLI::App& command, ServeSettings& serve) {
  add(command, "max-num-seqs", serve.engine.max_num_seqs, "Requests that run at the same time")
      ->check(CLI::Range(1, kMaxSequences));
  add(command, "host", serve.host, "Address to listen on");
  add(command, "port", serve.port, "Port to listen on; 0: any free one");
  add(command, "http-threads", serve.http_threads, "Threads for connections and tokenisation")
      ->check(CLI::Range(1, kMaxThreads));
  add(command, "served-model-name", serve.served_model_name, "Name of the model in the API");
  add(command, "api-key", serve.api_key,
      "Keys that requests must carry (better in HISPARSE_API_KEY)");
  add_bytes(command, "max-body-bytes", serve.max_body_bytes, "Largest request body")
      ->check(CLI::Range(std::int64_t{1024}, kMaxBodyBytes));
  add(command, "max-num-queued-reqs", serve.max_num_queued_reqs,
      "Requests that run or wait; one more gets 503")
      ->check(CLI::Range(1, kMaxQueued));
  add(command, "shutdown-timeout", serve.shutdown_timeout,
      "Seconds that open requests may take after SIGTERM")
      ->check(CLI::Range(0, kMaxTimeoutSeconds));
}

void add_generate_options(CLI::App& command, GenerateSettings& generate) {
  add(command, "prompt", generate.prompt, "What to answer or to continue");
  command.add_flag("--raw", generate.raw,
                   "Continue the prompt as it is, without the chat template");
  add(command, "max-tokens", generate.max_tokens, "Most tokens to generate")
      ->check(CLI::Range(std::int64_t{1}, kMaxModelLength));
  add(command, "temperature", generate.temperature, "0 is greedy")
      ->check(CLI::Range(0.0f, kMaxTemperature));
  add(command, "top-p", generate.top_p, "Probability mass to sample from")
      ->check(CLI::Range(kMinTopP, 1.0f));
  add(command, "top-k", generate.top_k, "Most likely tokens to sample from; 0: all")
      ->check(CLI::NonNegativeNumber);
  add(command, "seed", generate.seed, "Of the random numbers");
  add(command, "stop", generate.stop, "Texts that end the output");
}

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

// What a single option's check cannot see.
std::string find_conflict(const EngineSettings& engine) {
  if (engine.model.empty()) return "--model is required: a GGUF file";
  if (engine.max_num_batched_tokens < engine.max_num_seqs) {
    return "--max-num-batched-tokens must be at least --max-num-seqs, so that every running "
           "request "
           "can take a step";
  }
  return "";
}

}  // namespace

std::variant<Settings, Exit> parse_command_line(std::span<const char* const> arguments,
                                                std::ostream& out, std::ostream& errors) {
  Settings settings;
  CLI::App app("hisparse serves large language models with contexts longer than memory holds.",
               "hisparse");
  app.require_subcommand(1);
  CLI::App* serve = app.add_subcommand("serve", "Serve a model over an OpenAI-compatible HTTP API");
  CLI::App* generate = app.add_subcommand("generate", "Answer one prompt on standard output");
  CLI::App* version = app.add_subcommand("version", "Print the version");
  // One prompt runs alone.
  settings.generate.engine.max_num_seqs = 1;
  std::string serve_config;
  std::string generate_config;
  add_engine_options(*serve, settings.serve.engine, serve_config);
  add_serve_options(*serve, settings.serve);
  add_engine_options(*generate, settings.generate.engine, generate_config);
  add_generate_options(*generate, settings.generate);
  // With a callback of its own a subcommand reads the environment only when it was chosen.
  for (CLI::App* subcommand : {serve, generate}) subcommand->parse_complete_callback([] {});

  const auto fail = [&errors](const std::string& message) {
    errors << "hisparse: " << message << "\nRun hisparse --help for more.\n";
    return Exit{kUsageError};
  };
  CLI::App* command = nullptr;
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
    command = app.get_subcommands().front();
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    out << (chosen.empty() ? app.help() : chosen.front()->help());
    return Exit{0};
  } catch (const CLI::ExtrasError& error) {
    const auto chosen = app.get_subcommands();
    const CLI::App& scope = chosen.empty() ? app : *chosen.front();
    const std::vector<std::string> extras = scope.remaining();
    const std::string argument = extras.empty() ? error.what() : extras.front();
    return fail("unknown argument '" + argument + "'" + suggestion(argument, scope));
  } catch (const CLI::ParseError& error) {
    return fail(error.what());
  }
  if (command == version) return settings;
  const std::string& config_file = command == serve ? serve_config : generate_config;
  if (!config_file.empty()) {
    if (absl::Status status = apply_yaml_file(config_file, *command); !status.ok()) {
      return fail(std::string(status.message()));
    }
  }
  settings.command = command == serve ? Command::kServe : Command::kGenerate;
  const EngineSettings& engine =
      command == serve ? settings.serve.engine : settings.generate.engine;
  if (const std::string conflict = find_conflict(engine); !conflict.empty()) return fail(conflict);
  if (command == generate && settings.generate.prompt.empty()) return fail("--prompt is required");
  for (const std::string& key : settings.serve.api_key) {
    if (key.empty()) return fail("--api-key must not be empty");
  }
  return settings;
}

}  // namespace hisparse::config
