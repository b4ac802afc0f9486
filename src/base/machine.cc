#include "base/machine.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <string>

namespace hisparse::base {
namespace {

constexpr std::int64_t kKibibyte = 1024;

// The number in a one-line file; nothing for "max" or a missing file.
std::optional<std::int64_t> read_number(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// cpu.max holds "quota period", or "max period".
std::optional<int> quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0.0;
  double period = 0.0;
  if (!(file >> quota >> period) || quota <= 0.0 || period <= 0.0) return std::nullopt;
  return static_cast<int>(std::ceil(quota / period));
}

// A value of /sys/fs/cgroup/memory.stat.
std::int64_t read_memory_stat(const std::string& wanted) {
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (name == wanted) return value;
  }
  return 0;
}

std::optional<std::int64_t> meminfo_available() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes) {
    if (name == "MemAvailable:") return kibibytes * kKibibyte;
    std::getline(file, unit);
  }
  return std::nullopt;
}

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = std::max(CPU_COUNT(&set), 1);
  if (const std::optional<int> quota = quota_cores()) cores = std::clamp(*quota, 1, cores);
  return cores;
}

std::int64_t available_memory() {
  std::int64_t available = meminfo_available().value_or(0);
  const auto limit = read_number("/sys/fs/cgroup/memory.max");
  const auto current = read_number("/sys/fs/cgroup/memory.current");
  if (limit && current) {
    const std::int64_t reclaimable = read_memory_stat("inactive_file");
    available = std::min(available, std::max<std::int64_t>(*limit - *current + reclaimable, 0));
  }
  return available;
}

}  // namespace hisparse::base
