// Runs the forward pass of a checkpoint on one or several CPU ranks, with pages of its own, and
// hands out logits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "device/cpu/cpu_device.h"
#include "format/checkpoint.h"
#include "model/rank_model.h"

namespace hisparse::test {

struct RigOptions {
  std::int32_t ranks = 1;
  std::int32_t threads = 2;
  device::Compute compute = device::Compute::kF32;
  base::DType kv_dtype = base::DType::kF32;
  std::int32_t page_tokens = 64;
  std::int32_t sequences = 1;
  std::int64_t max_tokens = 512;  // of one sequence
  std::int64_t max_rows = 512;
  std::uint64_t page_order_seed = 0;  // 0: in order; else shuffled
  device::CpuDeviceOptions device = {};
};

// A token at a position of a sequence; its logits are returned if wanted.
struct RigRow {
  std::int32_t sequence = 0;
  std::int64_t position = 0;
  base::TokenId token = 0;
  bool wants_logits = false;
};

using Logits = std::vector<float>;  // [vocabulary]

// Fails the running test (by CHECK) when the checkpoint does not load: tests know their fixtures.
class ModelRig {
 public:
  ModelRig(const std::string& path, const RigOptions& options);
  ~ModelRig();

  // One step on all ranks (one alone runs on the calling thread). Logits of the rows that want
  // them, in order.
  std::vector<Logits> run(const std::vector<RigRow>& rows);

  // Tokens `tokens` at positions first ... of a sequence, logits of the last one, or of all.
  Logits prefill(std::int32_t sequence, std::int64_t first,
                 const std::vector<base::TokenId>& tokens);
  std::vector<Logits> prefill_all(std::int32_t sequence, const std::vector<base::TokenId>& tokens);

  // What lies in a page of a sequence on a rank, laid out as engine::page_geometry says. Pages must
  // be in order.
  std::vector<std::byte> read_page(std::int32_t rank, std::int32_t sequence, std::int64_t page);

  const model::ModelSpec& spec() const { return spec_; }
  device::DeviceCounters counters() const;
  base::Ledger allocated() const;  // on the device of rank 0

 private:
  struct Rank;
  void run_rank(Rank& rank, const std::vector<RigRow>& rows, std::vector<Logits>& logits);

  RigOptions options_;
  base::ThreadPool pool_;
  model::ModelSpec spec_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

base::TokenId argmax(const Logits& logits);
// Largest absolute difference.
double max_difference(const Logits& a, const Logits& b);
double max_magnitude(const Logits& a);

// The folder of committed test data.
std::string test_data(const std::string& name);

}  // namespace hisparse::test
