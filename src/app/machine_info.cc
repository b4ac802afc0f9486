#include "app/machine_info.h"

#include <fstream>
#include <set>
#include <utility>

#include "base/machine.h"

namespace hisparse::app {
namespace {

std::string trim(const std::string& text) {
  constexpr const char* kBlanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

MachineInfo parse_cpuinfo(std::istream& cpuinfo) {
  MachineInfo info;
  std::set<std::pair<std::string, std::string>> cores;  // socket and core within it
  std::string socket;
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = trim(line.substr(0, colon));
    const std::string value = trim(line.substr(colon + 1));
    if (key == "processor") ++info.logical_cpus;
    if (key == "model name" && info.cpu_model.empty()) info.cpu_model = value;
    if (key == "physical id") socket = value;
    if (key == "core id") cores.insert({socket, value});
  }
  info.physical_cores = static_cast<int>(cores.size());
  return info;
}

MachineInfo read_machine_info() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  MachineInfo info = parse_cpuinfo(cpuinfo);
  info.usable_cpus = base::available_cores();
  return info;
}

}  // namespace hisparse::app
