// Ceilings of decode from bytes and bandwidths (reference/hisparse.md 5.3). No step is faster than
// what it reads allows; nothing here is measured, and compute counts for nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/capacity.h"
#include "plan/machine.h"

namespace hisparse::plan {

// What a decode step reads.
struct StepShape {
  RequestShape request;
  std::int64_t top_k = 0;   // kLatentSparse: rows that a layer reads
  std::int64_t layers = 0;  // that hold rows which spill
  Bandwidths bandwidths;
  // Bytes of weights that one device reads in a step with so many requests.
  std::function<double(double requests)> weight_bytes;
};

enum class Tier : std::uint8_t { kResident, kHost, kDisk };
std::string_view name_of(Tier tier);

struct StepCost {
  Tier tier = Tier::kResident;
  std::int64_t batch = 1;
  double miss = 1.0;  // share of the selected rows that come from this tier; dense: all rows
  double memory_bytes = 0.0;             // read from device memory, each device
  double link_bytes = 0.0;               // over each device's link; from disk: of the whole machine
  std::optional<double> memory_seconds;  // nothing: the bandwidth is not known
  std::optional<double> link_seconds;

  // Reading overlaps with everything else: the slower of the two. Nothing: not known.
  std::optional<double> seconds() const;
  std::optional<double> tokens_per_second() const;  // of one request
};

// All rows on the device.
StepCost resident_step(const StepShape& shape, std::int64_t context, std::int64_t batch);

// The rows of every request in host memory. Dense: all of them are streamed (class E0). Sparse: a
// share `miss` of the selected rows is gathered, the others are hot or resident.
StepCost host_step(const StepShape& shape, std::int64_t context, std::int64_t batch, double miss);

// The same from disk. Sparse: each missed row costs a slice of its page, at worst one for each row.
StepCost disk_step(const StepShape& shape, std::int64_t context, std::int64_t batch, double miss);

// A line of hisparse.md 5.3: the link alone.
struct MissCost {
  double miss = 0.0;
  std::int64_t batch = 1;
  double rows_per_layer = 0.0;       // of one request
  double stream_us_per_layer = 0.0;  // of the batch
  double gather_us_per_layer = 0.0;  // of the batch
  double gather_ms_per_step = 0.0;   // of the batch
  double tokens_per_second = 0.0;    // of one request
};
MissCost miss_cost(const StepShape& shape, std::int64_t batch, double miss);

}  // namespace hisparse::plan
