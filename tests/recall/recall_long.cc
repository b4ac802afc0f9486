// The recall fixture at any length, with injected rows: prints how many needles of each rung are
// found, what it took, and writes every answer, to be compared between layouts (README.md here).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <string>

#include "tests/recall/recall_engine.h"
#include "tests/recall/recall_rows.h"

namespace hisparse::test {
namespace {

constexpr const char* kUsage =
    "recall_long: asks 128 needles a rung and more about one long context\n"
    "  --folder DIR           for the model and the file of the disk tier (required)\n"
    "  --answers FILE         receives one answer a line (required)\n"
    "  --tokens N             of the context, whole pages of 64 (1048576)\n"
    "  --resident-bytes N     of KV pages; the rest goes to disk (0: all resident)\n"
    "  --most-memory N        fails if the process has taken more bytes (0: any)\n"
    "  --chains N             a multiple of 8 (1024)\n"
    "  --together N           questions at a time (32)\n"
    "  --seed N               (1)\n"
    "  --number N             which context of the seed (0); three in a row put a needle before, "
    "at\n"
    "                         and behind the beginning of every page that has one\n";

using Options = std::map<std::string, std::string>;

Options read_options(int argc, char** argv) {
  Options options = {{"--folder", ""},          {"--answers", ""},      {"--tokens", "1048576"},
                     {"--resident-bytes", "0"}, {"--most-memory", "0"}, {"--chains", "1024"},
                     {"--together", "32"},      {"--seed", "1"},        {"--number", "0"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!options.contains(argv[i])) return {};
    options[argv[i]] = argv[i + 1];
  }
  if (argc % 2 == 0 || options["--folder"].empty() || options["--answers"].empty()) return {};
  return options;
}

std::int64_t number(const Options& options, const char* name) {
  return std::strtoll(options.at(name).c_str(), nullptr, 10);
}

// VmHWM of this process, in bytes.
std::int64_t peak_memory() {
  std::ifstream file("/proc/self/status");
  std::string name;
  while (file >> name) {
    std::int64_t kibibytes = 0;
    if (name == "VmHWM:" && file >> kibibytes) return kibibytes * 1024;
    file.ignore(1 << 20, '\n');
  }
  return 0;
}

// Needles at every edge that a border of tiers may come to lie at: among the pages that the slab
// holds at the end, and some more; and now and then before.
ContextOptions context_options(const Options& options, std::int64_t slab_pages) {
  constexpr std::int64_t kMore = 256;
  constexpr std::int64_t kBetween = 32;
  ContextOptions context = {.seed = static_cast<std::uint64_t>(number(options, "--seed")),
                            .number = static_cast<std::int32_t>(number(options, "--number")),
                            .tokens = number(options, "--tokens")};
  const std::int64_t pages = context.tokens / context.page_tokens;
  for (std::int64_t page = 1; page < pages; ++page) {
    if (page >= pages - slab_pages - kMore || page % kBetween == 0) context.edges.push_back(page);
  }
  return context;
}

RecallLayout layout_of(const Options& options, const RecallShape& shape) {
  RecallLayout layout = {.tokens = number(options, "--tokens"),
                         .together = static_cast<std::int32_t>(number(options, "--together"))};
  const std::int64_t pages = layout.tokens / layout.page_tokens + 2 * layout.together;
  const std::int64_t slab =
      number(options, "--resident-bytes") / recall_page_bytes(shape, layout.page_tokens);
  layout.resident = slab == 0 ? pages : slab;
  if (slab == 0) return layout;
  layout.disk = pages;
  layout.disk_folder = options.at("--folder");
  return layout;
}

// What is wrong with the options; empty: nothing.
std::string find_bad_option(const Options& options, const RecallShape& shape) {
  const std::int64_t page = recall_page_bytes(shape, RecallLayout().page_tokens);
  const std::int64_t resident = number(options, "--resident-bytes");
  if (resident != 0 && resident < page) {
    return "--resident-bytes must hold a page (" + std::to_string(page) +
           " bytes), or be 0: all resident";
  }
  const std::int64_t context = number(options, "--number");
  if (context < 0 || context > std::numeric_limits<std::int32_t>::max()) {
    return "--number must be 0 or more, and fit into 32 bits";
  }
  return {};
}

class Stopwatch final {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void print_work(const RecallEngine& engine, const RecallLayout& layout, double seconds) {
  constexpr double kMebibyte = 1024.0 * 1024.0;
  const auto stats = engine.stats();
  const auto hits = [&](kv::Tier tier) {
    return static_cast<long long>(stats->kv.hit_pages[index_of(tier)]);
  };
  std::printf("%lld tokens, slab %.0f MiB, disk %lld pages: %.0f s, peak memory %.0f MiB\n",
              static_cast<long long>(layout.tokens),
              static_cast<double>(engine.plan().ledger[base::MemoryOwner::kKvSlab]) / kMebibyte,
              static_cast<long long>(layout.disk), seconds,
              static_cast<double>(peak_memory()) / kMebibyte);
  std::printf("pages that questions found: %lld resident, %lld on disk; %.1f GiB read from disk\n",
              hits(kv::Tier::kResident), hits(kv::Tier::kDisk),
              static_cast<double>(stats->streamed.bytes()) / kMebibyte / 1024.0);
}

// Why the run has failed; empty: it has not.
std::string find_fault(const Options& options, const RecallLayout& layout,
                       const engine::EngineStats& stats) {
  const std::int64_t most = number(options, "--most-memory");
  if (most > 0 && peak_memory() > most) return "the process has taken more memory than it may";
  if (layout.disk == 0) return {};
  if (stats.streamed.bytes() == 0) {
    return "no step has read from disk: the slab holds it all, make --resident-bytes smaller";
  }
  if (stats.kv.hit_pages[index_of(kv::Tier::kDisk)] == 0) {
    return "no question has found a page on disk";
  }
  return {};
}

// False if they could not be written.
bool write_answers(const std::string& path, const RecallAnswers& answers) {
  std::ofstream file(path);
  for (const base::TokenId token : answers.tokens) file << token << "\n";
  file.close();
  return file.good();
}

int fail(const std::string& fault) {
  std::cerr << fault << std::endl;
  return 1;
}

int run(const Options& options) {
  const RecallShape shape = {.seed = static_cast<std::uint64_t>(number(options, "--seed")),
                             .chains = static_cast<std::int32_t>(number(options, "--chains")),
                             .fillers = 1024,
                             .absent = 32};
  if (const std::string bad = find_bad_option(options, shape); !bad.empty()) return fail(bad);
  const RecallModel model(shape);
  const std::string folder = options.at("--folder") + "/recall-model";
  std::filesystem::create_directories(folder);
  if (const absl::Status status = model.write(folder); !status.ok()) {
    return fail(status.ToString());
  }
  const RecallLayout layout = layout_of(options, shape);
  // The same context for every layout that has this slab, or none.
  constexpr std::int64_t kSlabBytes = std::int64_t{256} << 20;
  const RecallContext context = make_context(
      model.vocabulary(),
      context_options(options, kSlabBytes / recall_page_bytes(shape, layout.page_tokens)));
  RecallRows rows(model, context);
  config::EngineSettings settings = recall_settings(shape, layout);
  settings.max_num_batched_tokens = 2048;
  const Stopwatch watch;
  RecallEngine engine(folder, settings, &rows);
  const RecallAnswers answers = engine.ask(context);
  const bool written = write_answers(options.at("--answers"), answers);
  print_work(engine, layout, watch.seconds());
  RecallScore score;
  score.add(context, answers);
  std::cout << score.table();
  if (!written) return fail("the answers could not be written to " + options.at("--answers"));
  std::string fault = find_fault(options, layout, *engine.stats());
  if (fault.empty()) fault = score.find_shortfall();
  return fault.empty() ? 0 : fail(fault);
}

}  // namespace
}  // namespace hisparse::test

int main(int argc, char** argv) {
  const auto options = hisparse::test::read_options(argc, argv);
  if (options.empty()) {
    std::cerr << hisparse::test::kUsage;
    return 2;
  }
  return hisparse::test::run(options);
}
