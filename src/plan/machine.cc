#include "plan/machine.h"

#include <cctype>
#include <charconv>

#include "format/untrusted_text.h"

namespace hisparse::plan {
namespace {

constexpr double kGB = 1e9;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr std::int32_t kMaxDevices = 64;

struct KnownGpu {
  const char* name;
  double memory_gib;  // what the driver leaves of the nominal size
  double memory_bandwidth;
};

// Nominal 80, 96 and 141 GB. All sit behind PCIe Gen5 x16.
constexpr KnownGpu kKnown[] = {
    {"H100", 79.1, 3350 * kGB}, {"H20", 95.0, 4000 * kGB}, {"H200", 139.0, 4800 * kGB}};
// reference/hisparse.md 5.3: streaming ceiling, and a realistic gather of rows of some 656 bytes.
constexpr double kPcieStream = 55 * kGB;
constexpr double kPcieGather = 37 * kGB;

std::string upper(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    result += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return result;
}

absl::Status unknown(std::string_view text) {
  std::string known;
  for (const KnownGpu& gpu : kKnown) known += std::string(gpu.name) + ", ";
  return absl::InvalidArgumentError("--gpus " + format::in_quotes(text) +
                                    " is not known: a count and a name, such as 8xH200, of " +
                                    known + "or cpu; at most " + std::to_string(kMaxDevices));
}

}  // namespace

absl::StatusOr<Machine> parse_machine(std::string_view text) {
  const std::string name = upper(text);
  Machine machine;
  std::string_view device = name;
  if (const std::size_t cross = name.find('X'); cross != std::string::npos) {
    const char* end = name.data() + cross;
    const auto parsed = std::from_chars(name.data(), end, machine.count);
    if (parsed.ec != std::errc() || parsed.ptr != end) return unknown(text);
    device.remove_prefix(cross + 1);
  }
  if (machine.count < 1 || machine.count > kMaxDevices) return unknown(text);
  for (const KnownGpu& gpu : kKnown) {
    if (device != gpu.name) continue;
    machine.device = gpu.name;
    machine.memory = static_cast<std::int64_t>(gpu.memory_gib * kGiB);
    machine.bandwidths = {
        .memory = gpu.memory_bandwidth, .stream = kPcieStream, .gather = kPcieGather, .disk = 0.0};
    return machine;
  }
  return unknown(text);
}

}  // namespace hisparse::plan
