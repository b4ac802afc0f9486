// Whole decode steps of SmolLM2, from token to logits, against the read bandwidth: a step of one
// row has to read every weight once. HISPARSE_SMOLLM2 names the model file.
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/bench/harness.h"
#include "tests/support/model_rig.h"

namespace hisparse::bench {
namespace {

using device::Compute;
using test::ModelRig;

constexpr std::int64_t kContext = 256;  // tokens in front of the row
constexpr std::int32_t kBatches[] = {1, 8};
constexpr std::int32_t kMaxBatch = 8;
constexpr Compute kComputes[] = {Compute::kInt16, Compute::kInt8, Compute::kBF16, Compute::kF32};

std::string model_path() {
  const char* path = std::getenv("HISPARSE_SMOLLM2");
  return path == nullptr ? "" : path;
}

std::unique_ptr<ModelRig> make_rig(const Machine& machine, Compute compute) {
  auto rig =
      std::make_unique<ModelRig>(model_path(), test::RigOptions{.threads = machine.pool.threads(),
                                                                .compute = compute,
                                                                .kv_dtype = base::DType::kBF16,
                                                                .sequences = kMaxBatch});
  std::vector<base::TokenId> tokens;
  for (std::int64_t i = 0; i < kContext; ++i) tokens.push_back(static_cast<base::TokenId>(i + 100));
  for (std::int32_t s = 0; s < kMaxBatch; ++s) (void)rig->prefill(s, 0, tokens);
  return rig;
}

void add_step(Machine& machine, const std::shared_ptr<Kept<ModelRig>>& kept, Compute compute,
              std::int32_t batch) {
  const std::string kind(device::name_of(compute));
  add_case("decode_step/smollm2/" + kind + "/batch:" + std::to_string(batch),
           [&machine, kept, compute, batch, kind](benchmark::State& state) {
             ModelRig& rig = kept->get(kind, [&] { return make_rig(machine, compute); });
             std::vector<test::RigRow> rows;
             for (std::int32_t s = 0; s < batch; ++s) {
               rows.push_back(
                   {.sequence = s, .position = kContext, .token = 1000 + s, .wants_logits = true});
             }
             const std::int64_t bytes = rig.allocated()[base::MemoryOwner::kWeights];
             measure(state, machine, {.amount = static_cast<double>(bytes)},
                     [&] { benchmark::DoNotOptimize(rig.run(rows)); });
             constexpr double kMega = 1e6;
             state.counters["weights_MB"] = static_cast<double>(bytes) / kMega;
             state.counters["tokens/s"] =
                 benchmark::Counter(batch, benchmark::Counter::kIsIterationInvariantRate);
           });
}

void register_steps(Machine& machine) {
  const auto kept = std::make_shared<Kept<ModelRig>>();
  for (Compute compute : kComputes) {
    for (std::int32_t batch : kBatches) add_step(machine, kept, compute, batch);
  }
}

}  // namespace
}  // namespace hisparse::bench

int main(int argc, char** argv) {
  if (hisparse::bench::model_path().empty()) {
    std::cout << "skipped: HISPARSE_SMOLLM2 does not name the model file\n";
    return hisparse::bench::kSkipped;
  }
  return hisparse::bench::run_benchmarks(argc, argv, hisparse::bench::register_steps);
}
