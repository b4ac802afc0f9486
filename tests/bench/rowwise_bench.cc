// The operators that go over rows: sampling of SmolLM2's vocabulary, rotation and storage of keys,
// embedding. The normalisation and silu are measured inside the products that they are fused with.
#include <string>

#include "tests/bench/harness.h"
#include "tests/bench/random_kv.h"
#include "tests/bench/random_weights.h"

namespace hisparse::bench {
namespace {

using device::Buffer;
using device::SampleRow;

constexpr std::int64_t kVocabulary = 49152;
constexpr std::int64_t kWidth = 576;
constexpr std::int64_t kChunkRows = 512;
constexpr std::int64_t kFloatBytes = 4;

// --- sample ---

struct Sampling {
  const char* name;
  SampleRow row;
};
constexpr Sampling kSamplings[] = {
    {"greedy", {}},
    {"temperature", {.temperature = 0.8f}},
    {"top_k_50", {.temperature = 0.8f, .top_k = 50}},
    {"top_p_0.95", {.temperature = 0.8f, .top_p = 0.95f}},
};
constexpr std::int64_t kSampleRows[] = {1, 8};

struct SampleCase {
  SampleCase(const Machine& machine, const SampleRow& row, std::int64_t rows)
      : logits(machine.floats(rows * kVocabulary)),
        params(machine.upload(std::vector<SampleRow>(static_cast<std::size_t>(rows), row))),
        tokens(machine.allocate(rows * static_cast<std::int64_t>(sizeof(base::TokenId)))) {}
  Buffer logits, params, tokens;
};

void add_sample(Machine& machine, const Sampling& sampling, std::int64_t rows) {
  const auto kept = std::make_shared<Kept<SampleCase>>();
  const std::string name = std::string("sample/") + sampling.name + "/rows:" + std::to_string(rows);
  add_case(name, [&machine, kept, &sampling, rows, name](benchmark::State& state) {
    SampleCase& sample =
        kept->get(name, [&] { return std::make_unique<SampleCase>(machine, sampling.row, rows); });
    const auto bytes = static_cast<double>(rows * kVocabulary * kFloatBytes);
    measure(state, machine, {.amount = bytes}, [&] {
      machine.device->sample({.logits = sample.logits.as<const float>(),
                              .rows_params = sample.params.as<const SampleRow>(),
                              .tokens = sample.tokens.as<base::TokenId>(),
                              .rows = rows,
                              .vocabulary = kVocabulary},
                             *machine.stream);
      machine.synchronize();
    });
  });
}

// --- rope_and_store ---

std::vector<std::int64_t> rising_positions() {
  std::vector<std::int64_t> positions;
  for (std::int64_t r = 0; r < kChunkRows; ++r) positions.push_back(r);
  return positions;
}

struct RopeCase {
  explicit RopeCase(const Machine& machine)
      : kv(machine, 1, kChunkRows),
        q(machine.floats(kChunkRows * kHeads * kHeadDim)),
        k(machine.floats(kChunkRows * kKvHeads * kHeadDim)),
        v(machine.floats(kChunkRows * kKvHeads * kHeadDim)),
        cos_sin(machine.floats(kChunkRows * kHeadDim)),
        slots(machine.upload(std::vector<std::int32_t>(kChunkRows, 0))),
        positions(machine.upload(rising_positions())) {}

  void run(const Machine& machine) const {
    machine.device->rope_and_store({.q = q.as<float>(),
                                    .k = k.as<const float>(),
                                    .v = v.as<const float>(),
                                    .cos_sin = cos_sin.as<const float>(),
                                    .placement = {.sequence_slots = slots.as<const std::int32_t>(),
                                                  .positions = positions.as<const std::int64_t>(),
                                                  .rows = kChunkRows},
                                    .pages = kv.pages(),
                                    .rotary_pairs = kHeadDim / 2,
                                    .heads = kHeads},
                                   *machine.stream);
    machine.synchronize();
  }

  RandomKv kv;
  Buffer q, k, v, cos_sin, slots, positions;
};

void add_rope(Machine& machine) {
  const auto kept = std::make_shared<Kept<RopeCase>>();
  const std::string name = "rope_and_store/rows:512";
  add_case(name, [&machine, kept, name](benchmark::State& state) {
    const RopeCase& rope = kept->get(name, [&] { return std::make_unique<RopeCase>(machine); });
    // q is read and written; k, v and the angles are read; the pages are written.
    constexpr std::int64_t kFloats = (2 * kHeads + 2 * kKvHeads + 1) * std::int64_t{kHeadDim};
    const auto bytes = static_cast<double>(kChunkRows * (kFloats * kFloatBytes + kTokenBytes));
    measure(state, machine, {.amount = bytes}, [&] { rope.run(machine); });
  });
}

// --- embed ---

struct EmbedCase {
  EmbedCase(const Machine& machine, const WeightKind& kind)
      : table(random_weight(machine, {"table", kVocabulary, kWidth}, kind)),
        out(machine.floats(kChunkRows * kWidth)) {
    constexpr std::int64_t kStride = 97;  // spreads the tokens over the table
    std::vector<base::TokenId> ids;
    for (std::int64_t r = 0; r < kChunkRows; ++r) {
      ids.push_back(static_cast<base::TokenId>(r * kStride % kVocabulary));
    }
    tokens = machine.upload(ids);
  }
  std::unique_ptr<device::Weight> table;
  Buffer out, tokens;
};

void add_embed(Machine& machine, const WeightKind& kind) {
  const auto kept = std::make_shared<Kept<EmbedCase>>();
  const std::string name = std::string("embed/") + kind.name + "/rows:512";
  add_case(name, [&machine, kept, &kind, name](benchmark::State& state) {
    const EmbedCase& embed =
        kept->get(name, [&] { return std::make_unique<EmbedCase>(machine, kind); });
    const auto bytes = static_cast<double>(kChunkRows * kWidth * kFloatBytes);
    measure(state, machine, {.amount = bytes}, [&] {
      machine.device->embed({.table = embed.table.get(),
                             .tokens = embed.tokens.as<const base::TokenId>(),
                             .out = embed.out.as<float>(),
                             .rows = kChunkRows},
                            *machine.stream);
      machine.synchronize();
    });
  });
}

// --- what is fused into a product ---

struct FusedCase {
  FusedCase(const Machine& machine, const Matrix& matrix, const WeightKind& kind)
      : weight(random_weight(machine, matrix, kind)),
        in(machine.floats(kChunkRows * matrix.k)),
        operand(machine.floats(kChunkRows * matrix.k)),
        out(machine.floats(kChunkRows * matrix.n)) {}
  std::unique_ptr<device::Weight> weight;
  Buffer in, operand, out;
};

struct Fused {
  const char* name;
  Matrix matrix;
  device::LinearInput input;
};
constexpr Fused kFused[] = {
    {"rms_norm", {"up", 1536, 576}, device::LinearInput::kRmsNorm},
    {"silu_mul", {"down", 576, 1536}, device::LinearInput::kSiluMul},
};

// One iteration runs the product with and without its input's operator: `extra%` is what that adds.
void add_fused(Machine& machine, const Fused& fused, const WeightKind& kind) {
  const auto kept = std::make_shared<Kept<FusedCase>>();
  const std::string name = std::string("fused/") + fused.name + "/" + kind.name + "/rows:512";
  add_case(name, [&machine, kept, &fused, &kind, name](benchmark::State& state) {
    const FusedCase& linear =
        kept->get(name, [&] { return std::make_unique<FusedCase>(machine, fused.matrix, kind); });
    const auto run = [&](device::LinearInput input) {
      machine.device->linear(
          {.products = {{{.weight = linear.weight.get(), .out = linear.out.as<float>()}}},
           .in = linear.in.as<const float>(),
           .operand = linear.operand.as<const float>(),
           .rows = kChunkRows,
           .epsilon = 1e-5f,
           .input = input},
          *machine.stream);
      machine.synchronize();
    };
    std::vector<double> plain, with;
    for (auto _ : state) {
      plain.push_back(seconds_of([&] { run(device::LinearInput::kPlain); }));
      with.push_back(seconds_of([&] { run(fused.input); }));
    }
    constexpr double kMicro = 1e6;
    constexpr double kPercent = 100.0;
    state.counters["plain_us"] = kMicro * median(plain);
    state.counters["fused_us"] = kMicro * median(with);
    state.counters["extra%"] = kPercent * (median(with) / median(plain) - 1.0);
  });
}

void register_rowwise(Machine& machine) {
  for (const Sampling& sampling : kSamplings) {
    for (std::int64_t rows : kSampleRows) add_sample(machine, sampling, rows);
  }
  add_rope(machine);
  for (const WeightKind& kind : kWeightKinds) add_embed(machine, kind);
  for (const Fused& fused : kFused) {
    for (const WeightKind& kind : kWeightKinds) add_fused(machine, fused, kind);
  }
}

}  // namespace
}  // namespace hisparse::bench

int main(int argc, char** argv) {
  return hisparse::bench::run_benchmarks(argc, argv, hisparse::bench::register_rowwise);
}
