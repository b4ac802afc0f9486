// Which machine this is, for reports that are compared later.
#pragma once

#include <istream>
#include <string>

namespace hisparse::app {

// Zero or empty: not known.
struct MachineInfo {
  std::string cpu_model;
  int logical_cpus = 0;    // hardware threads
  int physical_cores = 0;  // over all sockets
  int usable_cpus = 0;     // by affinity and control group
};

// From text in the form of /proc/cpuinfo: all but usable_cpus.
MachineInfo parse_cpuinfo(std::istream& cpuinfo);

// Of this machine.
MachineInfo read_machine_info();

}  // namespace hisparse::app
