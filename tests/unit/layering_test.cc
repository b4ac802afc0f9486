// An arrow points only to folders named earlier (docs/ARCHITECTURE.md): parses #include lines,
// since a shared include root defeats the linker's check.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// Folders of src/ in order; each may include itself and earlier ones.
const std::vector<std::string> kFolders = {
    "base",     "config", "format", "text",   "device", "comm", "model", "kv",
    "transfer", "sched",  "plan",   "engine", "api",    "http", "obs",   "app"};

// Stricter than the order: what these may use at all.
const std::map<std::string, std::vector<std::string>> kOnly = {
    {"base", {}},
    {"config", {"base"}},
    {"format", {"base"}},
    {"text", {"base", "format"}},
    {"kv", {"base"}},
    {"transfer", {"base", "device", "kv"}},
    {"sched", {"base", "kv"}},
    {"plan", {"base", "format", "model", "kv", "transfer"}},
    {"obs", {"base", "kv", "engine"}},
};

// Libraries that the inner folders never see.
const std::vector<std::string> kInner = {"model", "kv", "transfer", "sched", "plan", "engine"};
const std::regex kForbiddenInside("^(boost/|nlohmann/|simdjson|prometheus/|grpc|CLI/|yaml-cpp/)");

std::size_t rank_of(const std::string& folder) {
  return static_cast<std::size_t>(std::find(kFolders.begin(), kFolders.end(), folder) -
                                  kFolders.begin());
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Why `folder` must not include `target`, or nothing.
std::string violation(const std::string& folder, const std::string& target) {
  if (contains(kInner, folder) && std::regex_search(target, kForbiddenInside)) return "library";
  const std::string first = target.substr(0, target.find('/'));
  if (first == folder || rank_of(first) == kFolders.size()) return "";
  if (rank_of(first) > rank_of(folder)) return "later folder";
  const auto only = kOnly.find(folder);
  if (only != kOnly.end() && !contains(only->second, first)) return "folder outside its list";
  if (folder == "http" && first == "obs") return "later folder";
  return "";
}

fs::path source_root() {
  const char* data = std::getenv("HISPARSE_TEST_DATA");
  return fs::path(data == nullptr ? "tests" : data).parent_path() / "src";
}

TEST(Layering, EveryIncludePointsToAnEarlierFolder) {
  const std::regex include(R"re(^\s*#\s*include\s*["<]([^">]+)[">])re");
  int files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source_root())) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".h" && extension != ".cc" && extension != ".cu" && extension != ".cuh")
      continue;
    ++files;
    const std::string folder = fs::relative(entry.path(), source_root()).begin()->string();
    ASSERT_LT(rank_of(folder), kFolders.size()) << "folder " << folder << " is not in the order";
    std::ifstream file(entry.path());
    std::smatch match;
    for (std::string line; std::getline(file, line);) {
      if (!std::regex_search(line, match, include)) continue;
      const std::string why = violation(folder, match[1]);
      EXPECT_EQ(why, "") << entry.path() << " includes " << match[1];
    }
  }
  EXPECT_GT(files, 50);
}

TEST(Layering, AWrongArrowIsSeen) {
  EXPECT_NE(violation("kv", "engine/engine.h"), "");
  EXPECT_NE(violation("kv", "device/device.h"), "");
  EXPECT_NE(violation("engine", "nlohmann/json.hpp"), "");
  EXPECT_NE(violation("sched", "model/model_spec.h"), "");
  EXPECT_NE(violation("base", "format/metadata.h"), "");
  EXPECT_EQ(violation("engine", "kv/block_key.h"), "");
  EXPECT_EQ(violation("api", "nlohmann/json.hpp"), "");
  EXPECT_EQ(violation("kv", "absl/status/status.h"), "");
}

}  // namespace
