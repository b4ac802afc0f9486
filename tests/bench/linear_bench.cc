// Matrix products through the Device interface: GEMM against the peak of its arithmetic, GEMV
// against the read bandwidth, and what the fixed order of sums costs.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "device/cpu/packed_weight.h"
#include "tests/bench/free_order.h"
#include "tests/bench/harness.h"
#include "tests/bench/random_weights.h"

namespace hisparse::bench {
namespace {

using device::cpu::PackedWeight;

constexpr Matrix kMatrices[] = {
    {"llama3_8b_up", 14336, 4096}, {"llama3_8b_down", 4096, 14336}, {"llama3_8b_qkv", 4096, 4096},
    {"smollm2_up", 1536, 576},     {"smollm2_down", 576, 1536},     {"smollm2_head", 49152, 576},
};
constexpr std::int64_t kGemmRows[] = {8, 32, 512};

// A product of `rows` rows with one of some weights.
struct LinearCase {
  LinearCase(const Machine& machine, const Matrix& matrix, std::int64_t row_count,
             std::vector<std::unique_ptr<device::Weight>> copies)
      : weights(std::move(copies)),
        rows(row_count),
        in(machine.floats(row_count * matrix.k)),
        out(machine.floats(row_count * matrix.n)) {}

  void run(const Machine& machine) {
    machine.device->linear({.products = {{{.weight = weights[next].get(), .out = out.as<float>()}}},
                            .in = in.as<const float>(),
                            .operand = {},
                            .rows = rows},
                           *machine.stream);
    machine.synchronize();
    next = (next + 1) % weights.size();
  }

  std::vector<std::unique_ptr<device::Weight>> weights;
  std::int64_t rows;
  device::Buffer in, out;
  std::size_t next = 0;
};

using KeptCase = std::shared_ptr<Kept<LinearCase>>;

void add_gemm(Machine& machine, const KeptCase& kept, const Matrix& matrix,
              const WeightKind& kind) {
  for (std::int64_t rows : kGemmRows) {
    const std::string name =
        std::string("gemm/") + matrix.name + "/" + kind.name + "/rows:" + std::to_string(rows);
    add_case(name, [&machine, kept, &matrix, &kind, rows, name](benchmark::State& state) {
      LinearCase& linear = kept->get(name, [&] {
        std::vector<std::unique_ptr<device::Weight>> weight;
        weight.push_back(random_weight(machine, matrix, kind));
        return std::make_unique<LinearCase>(machine, matrix, rows, std::move(weight));
      });
      const double products = static_cast<double>(rows * matrix.n * matrix.k);
      measure(state, machine, {.amount = 2.0 * products, .peak = kind.peak},
              [&] { linear.run(machine); });
    });
  }
}

void add_gemv(Machine& machine, const KeptCase& kept, const Matrix& matrix,
              const WeightKind& kind) {
  const std::string name = std::string("gemv/") + matrix.name + "/" + kind.name;
  add_case(name, [&machine, kept, &matrix, &kind, name](benchmark::State& state) {
    LinearCase& linear = kept->get(name, [&] {
      return std::make_unique<LinearCase>(machine, matrix, 1, weight_copies(machine, matrix, kind));
    });
    measure(state, machine, {.amount = static_cast<double>(weight_bytes(matrix, kind))},
            [&] { linear.run(machine); });
  });
}

// --- the cost of the contract ---

constexpr Matrix kOrderMatrices[] = {{"llama3_8b_up_from_dram", 14336, 4096},
                                     {"smollm2_output_in_cache", 576, 576}};
// Panels of one task of either order.
constexpr std::int64_t kPanelsPerTask = 4;

// [k] values that bf16 holds exactly.
std::vector<float> varying_row(std::int64_t k) {
  constexpr std::int64_t kPeriod = 7;
  constexpr float kStep = 0.25f;
  std::vector<float> row;
  for (std::int64_t i = 0; i < k; ++i) {
    row.push_back(kStep * static_cast<float>(i % kPeriod - kPeriod / 2));
  }
  return row;
}

// The same panels, threads and input in both orders; only the kernels differ.
class OrderCase final {
 public:
  OrderCase(Machine& machine, const Matrix& matrix, const WeightKind& kind)
      : weight_(random_weight(machine, matrix, kind)),
        row_(varying_row(matrix.k)),
        tile_(row_.size()),
        out_(static_cast<std::size_t>(matrix.n)) {
    device::cpu::RowTile tile = {.rows = {row_.data()},
                                 .count = 1,
                                 .k = matrix.k,
                                 .out = tile_.data(),
                                 .activation = packed().activation()};
    device::cpu::kernels_v3().pack_rows(tile);
    check_equal(machine);
  }

  void run_contract(Machine& machine) {
    for_panels(machine, [&](std::int64_t panel) {
      device::cpu::kernels_v3().multiply_panel({.panel = packed().panel(panel),
                                                .tiles = tile_.data(),
                                                .out = out_at(panel),
                                                .k = packed().cols(),
                                                .out_stride = packed().rows(),
                                                .rows = 1,
                                                .columns = device::cpu::kPanelColumns,
                                                .element = packed().element(),
                                                .activation = packed().activation()});
    });
  }

  void run_free(Machine& machine) {
    for_panels(machine, [&](std::int64_t panel) {
      multiply_row_in_free_order(packed().element(), packed().panel(panel), row_.data(),
                                 out_at(panel), packed().cols());
    });
  }

 private:
  // Both orders compute the same, but for rounding: otherwise their times mean nothing.
  void check_equal(Machine& machine) {
    constexpr float kTolerance = 1e-3f;
    run_contract(machine);
    const std::vector<float> expected = out_;
    run_free(machine);
    for (std::size_t i = 0; i < out_.size(); ++i) {
      HS_CHECK(std::abs(out_[i] - expected[i]) <= kTolerance);
    }
  }

  const PackedWeight& packed() const { return static_cast<const PackedWeight&>(*weight_); }
  float* out_at(std::int64_t panel) { return out_.data() + panel * device::cpu::kPanelColumns; }

  template <typename Body>
  void for_panels(Machine& machine, const Body& body) const {
    const std::int64_t panels = packed().panels();
    machine.pool.parallel_for((panels + kPanelsPerTask - 1) / kPanelsPerTask, [&](std::int64_t t) {
      const std::int64_t end = std::min(panels, (t + 1) * kPanelsPerTask);
      for (std::int64_t panel = t * kPanelsPerTask; panel < end; ++panel) body(panel);
    });
  }

  const std::unique_ptr<device::Weight> weight_;
  const std::vector<float> row_;
  std::vector<float> tile_;
  std::vector<float> out_;
};

// One iteration runs both orders, so that whatever else the machine does meets both.
void add_order(Machine& machine, const std::shared_ptr<Kept<OrderCase>>& kept, const Matrix& matrix,
               const WeightKind& kind) {
  const std::string name = std::string("order/") + matrix.name + "/" + kind.name;
  add_case(name, [&machine, kept, &matrix, &kind, name](benchmark::State& state) {
    OrderCase& order =
        kept->get(name, [&] { return std::make_unique<OrderCase>(machine, matrix, kind); });
    std::vector<double> contract, free;
    for (auto _ : state) {
      contract.push_back(seconds_of([&] { order.run_contract(machine); }));
      free.push_back(seconds_of([&] { order.run_free(machine); }));
    }
    constexpr double kMicro = 1e6;
    const double contract_seconds = median(contract);
    const double free_seconds = median(free);
    state.counters["contract_us"] = kMicro * contract_seconds;
    state.counters["free_us"] = kMicro * free_seconds;
    state.counters["ratio"] = contract_seconds / free_seconds;
  });
}

void register_linear(Machine& machine) {
  const auto kept = std::make_shared<Kept<LinearCase>>();
  for (const Matrix& matrix : kMatrices) {
    for (const WeightKind& kind : kWeightKinds) add_gemm(machine, kept, matrix, kind);
  }
  for (const Matrix& matrix : kMatrices) {
    for (const WeightKind& kind : kWeightKinds) add_gemv(machine, kept, matrix, kind);
  }
  // The fastest order is written for x86-64-v3; so are the contract's kernels that it is compared
  // with.
  if (machine.device->isa_level() == "x86-64-v2") return;
  const auto kept_order = std::make_shared<Kept<OrderCase>>();
  for (const Matrix& matrix : kOrderMatrices) {
    for (const WeightKind& kind : kWeightKinds) {
      if (base::block_shape(kind.stored).values == 1) add_order(machine, kept_order, matrix, kind);
    }
  }
}

}  // namespace
}  // namespace hisparse::bench

int main(int argc, char** argv) {
  return hisparse::bench::run_benchmarks(argc, argv, hisparse::bench::register_linear);
}
