// Attention with SmolLM2's geometry (9 query and 3 KV heads of 64, bf16 pages): decode against the
// read bandwidth, prefill chunks against the f32 peak.
#include <cmath>
#include <string>

#include "tests/bench/harness.h"
#include "tests/bench/random_kv.h"
#include "tests/bench/random_weights.h"

namespace hisparse::bench {
namespace {

constexpr std::int64_t kQueryValues = std::int64_t{kHeads} * kHeadDim;

// Steps of `rows` rows each; the steps take turns, so that decode finds its keys in DRAM.
class AttentionCase final {
 public:
  AttentionCase(const Machine& machine, RandomKv kv, const std::vector<std::int32_t>& slots,
                const std::vector<std::int64_t>& positions, std::int64_t rows)
      : kv_(std::move(kv)),
        slots_(machine.upload(slots)),
        positions_(machine.upload(positions)),
        q_(machine.floats(rows * kQueryValues)),
        out_(machine.floats(rows * kQueryValues)),
        rows_(rows),
        steps_(static_cast<std::int64_t>(slots.size()) / rows) {}

  void run(const Machine& machine) {
    const std::int64_t first = step_ * rows_;
    machine.device->paged_attention(
        {.q = q_.as<const float>(),
         .out = out_.as<float>(),
         .placement = {.sequence_slots = slots_.as<const std::int32_t>() + first,
                       .positions = positions_.as<const std::int64_t>() + first,
                       .rows = rows_},
         .pages = kv_.pages(),
         .heads = kHeads,
         .scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim))},
        *machine.stream);
    machine.synchronize();
    step_ = (step_ + 1) % steps_;
  }

 private:
  const RandomKv kv_;
  const device::Buffer slots_, positions_, q_, out_;
  const std::int64_t rows_;
  const std::int64_t steps_;
  std::int64_t step_ = 0;
};

using KeptCase = std::shared_ptr<Kept<AttentionCase>>;

struct Decode {
  std::int64_t batch = 0;
  std::int64_t context = 0;
  std::int32_t page_tokens = kPageTokens;

  std::int64_t step_bytes() const { return batch * context * kTokenBytes; }
  // As many that each step finds its pages in DRAM.
  std::int64_t steps() const { return std::max<std::int64_t>(2, kBeyondCaches / step_bytes() + 1); }
  std::string name() const {
    return "batch:" + std::to_string(batch) + "/context:" + std::to_string(context) +
           (page_tokens == kPageTokens ? "" : "/page:" + std::to_string(page_tokens));
  }
};
constexpr std::int64_t kKibi = 1024;
constexpr Decode kDecodes[] = {
    {1, 4 * kKibi}, {1, 32 * kKibi}, {1, 128 * kKibi}, {1, 32 * kKibi, 256}, {8, 7680}};

void add_decode(Machine& machine, const KeptCase& kept, const Decode& decode) {
  const std::string name = "decode/" + decode.name();
  add_case(name, [&machine, kept, decode, name](benchmark::State& state) {
    AttentionCase& attention = kept->get(name, [&] {
      const std::int64_t sequences = decode.steps() * decode.batch;
      std::vector<std::int32_t> slots;
      for (std::int64_t i = 0; i < sequences; ++i) slots.push_back(static_cast<std::int32_t>(i));
      const std::vector<std::int64_t> positions(slots.size(), decode.context - 1);
      return std::make_unique<AttentionCase>(
          machine, RandomKv(machine, sequences, decode.context, decode.page_tokens), slots,
          positions, decode.batch);
    });
    measure(state, machine, {.amount = static_cast<double>(decode.step_bytes())},
            [&] { attention.run(machine); });
  });
}

// The pages of a sequence without any arithmetic, in the order in which attention reads them: the
// keys of a segment, then its values.
void read_pages(Machine& machine, const RandomKv& kv, std::int64_t sequence) {
  const std::int64_t pages = device::kSegmentTokens / kv.pages().page_tokens;
  machine.pool.parallel_for(kv.pages().pages_per_sequence / pages, [&](std::int64_t segment) {
    std::int64_t read = 0;
    for (std::int64_t plane : {0, 1}) {
      for (std::int64_t page = segment * pages; page < (segment + 1) * pages; ++page) {
        read +=
            machine.peak.read(kv.page(sequence, page) + plane * kv.plane_bytes(), kv.plane_bytes());
      }
    }
    benchmark::DoNotOptimize(read);
  });
}

// What attention could reach at the most over such pages.
void add_pages(Machine& machine, const std::shared_ptr<Kept<RandomKv>>& kept,
               const Decode& decode) {
  const std::string name = "pages/" + decode.name();
  add_case(name, [&machine, kept, decode, name](benchmark::State& state) {
    const RandomKv& kv = kept->get(name, [&] {
      return std::make_unique<RandomKv>(machine, decode.steps(), decode.context,
                                        decode.page_tokens);
    });
    std::int64_t step = 0;
    measure(state, machine, {.amount = static_cast<double>(decode.step_bytes())},
            [&] { read_pages(machine, kv, step++ % kv.sequences()); });
  });
}

constexpr std::int64_t kChunkRows = 512;
constexpr std::int64_t kChunkStarts[] = {0, 3584, 7168};

void add_prefill(Machine& machine, const KeptCase& kept, std::int64_t start) {
  const std::string name = "prefill/rows:512/position:" + std::to_string(start);
  add_case(name, [&machine, kept, start, name](benchmark::State& state) {
    std::vector<std::int64_t> positions;
    double pairs = 0.0;
    for (std::int64_t r = 0; r < kChunkRows; ++r) {
      positions.push_back(start + r);
      pairs += static_cast<double>(start + r + 1);
    }
    AttentionCase& attention = kept->get(name, [&] {
      return std::make_unique<AttentionCase>(machine, RandomKv(machine, 1, start + kChunkRows),
                                             std::vector<std::int32_t>(positions.size(), 0),
                                             positions, kChunkRows);
    });
    // A product and a sum for q k, and as much for the weighted values.
    constexpr double kOperations = 4.0 * kQueryValues;
    measure(state, machine, {.amount = kOperations * pairs, .peak = Peak::kF32},
            [&] { attention.run(machine); });
  });
}

void register_attention(Machine& machine) {
  const auto kept = std::make_shared<Kept<AttentionCase>>();
  const auto kept_pages = std::make_shared<Kept<RandomKv>>();
  for (const Decode& decode : kDecodes) {
    add_decode(machine, kept, decode);
    if (decode.batch == 1) add_pages(machine, kept_pages, decode);
  }
  for (std::int64_t start : kChunkStarts) add_prefill(machine, kept, start);
}

}  // namespace
}  // namespace hisparse::bench

int main(int argc, char** argv) {
  return hisparse::bench::run_benchmarks(argc, argv, hisparse::bench::register_attention);
}
