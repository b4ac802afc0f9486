#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "obs/metrics.h"

namespace hisparse::obs {
namespace {

// Places in /proc/self/stat, counted from the field behind the program's name (proc(5)).
constexpr int kUserTicks = 11;
constexpr int kSystemTicks = 12;
constexpr int kStartTicks = 19;
constexpr int kVirtualBytes = 20;
constexpr int kResidentPages = 21;

double boot_time_seconds() {
  std::ifstream file("/proc/stat");
  for (std::string word; file >> word;) {
    double seconds = 0;
    if (word == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

std::int64_t count_open_fds() {
  std::error_code error;
  std::int64_t count = 0;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator i("/proc/self/fd", error); !error && i != end;
       i.increment(error)) {
    ++count;
  }
  return count;
}

}  // namespace

ProcessStats read_process() {
  ProcessStats stats;
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  // The program's name may hold spaces and parentheses.
  const std::size_t name_end = line.rfind(") ");
  if (name_end == std::string::npos) return stats;
  std::istringstream rest(line.substr(name_end + 2));
  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::string value;
  for (int i = 0; i <= kResidentPages && rest >> value; ++i) {
    const double number = std::strtod(value.c_str(), nullptr);
    if (i == kUserTicks || i == kSystemTicks) stats.cpu_seconds += number / ticks_per_second;
    if (i == kStartTicks) {
      stats.start_time_seconds = boot_time_seconds() + number / ticks_per_second;
    }
    if (i == kVirtualBytes) stats.virtual_bytes = static_cast<std::int64_t>(number);
    if (i == kResidentPages) {
      stats.resident_bytes = static_cast<std::int64_t>(number) * sysconf(_SC_PAGESIZE);
    }
  }
  stats.open_fds = count_open_fds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    stats.max_fds = static_cast<std::int64_t>(limit.rlim_cur);
  }
  return stats;
}

}  // namespace hisparse::obs
