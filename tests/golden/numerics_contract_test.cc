// ARCHITECTURE section 2a, bit for bit: a row's bits depend only on its own inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/support/model_rig.h"

namespace hisparse::test {
namespace {

// Long enough for two segments of 256 tokens and several pages.
constexpr std::int64_t kPromptTokens = 300;
constexpr std::int32_t kMaxBatch = 64;

std::vector<base::TokenId> random_tokens(std::uint64_t seed, std::int64_t count,
                                         std::int32_t vocabulary) {
  std::mt19937_64 random(seed);
  std::vector<base::TokenId> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<base::TokenId>(random() % static_cast<std::uint64_t>(vocabulary)));
  }
  return tokens;
}

// All ways to multiply with both row types, and sharded.
struct Configuration {
  const char* name;
  const char* model;
  device::Compute compute;
  base::DType kv;
  std::int32_t ranks;
};

void PrintTo(const Configuration& configuration, std::ostream* out) { *out << configuration.name; }

class NumericsContract : public testing::TestWithParam<Configuration> {
 protected:
  RigOptions options() const {
    return {.ranks = GetParam().ranks,
            .compute = GetParam().compute,
            .kv_dtype = GetParam().kv,
            .max_tokens = kPromptTokens + 8};
  }
  static ModelRig make_rig(const RigOptions& options) {
    return ModelRig(test_data(std::string("golden/data/") + GetParam().model), options);
  }
};

TEST_P(NumericsContract, AnyChunkingOfThePromptGivesTheSameBits) {
  ModelRig rig = make_rig(options());
  const auto prompt = random_tokens(1, kPromptTokens, rig.spec().vocabulary);
  const std::vector<Logits> whole = rig.prefill_all(0, prompt);
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 8; ++trial) {
    std::vector<Logits> chunked;
    for (std::size_t first = 0; first < prompt.size();) {
      // Trial 0 goes token by token: decode against prefill.
      const std::size_t length =
          std::min<std::size_t>(trial == 0 ? 1 : 1 + random() % 97, prompt.size() - first);
      std::vector<RigRow> rows;
      for (std::size_t i = first; i < first + length; ++i) {
        rows.push_back({0, static_cast<std::int64_t>(i), prompt[i], true});
      }
      for (Logits& logits : rig.run(rows)) chunked.push_back(std::move(logits));
      first += length;
    }
    ASSERT_EQ(chunked, whole) << "trial " << trial;
  }
}

TEST_P(NumericsContract, ARowAloneEqualsTheSameRowInABatch) {
  RigOptions rig_options = options();
  rig_options.sequences = kMaxBatch;
  ModelRig rig = make_rig(rig_options);
  std::mt19937_64 random(3);
  std::vector<RigRow> decode;
  std::vector<Logits> alone;
  for (std::int32_t sequence = 0; sequence < kMaxBatch; ++sequence) {
    // One sequence in four crosses into the second segment of attention.
    const auto length =
        static_cast<std::int64_t>(sequence % 4 == 0 ? 257 + random() % 40 : 1 + random() % 60);
    const auto tokens = random_tokens(100 + static_cast<std::uint64_t>(sequence), length + 1,
                                      rig.spec().vocabulary);
    rig.prefill(sequence, 0, {tokens.begin(), tokens.end() - 1});
    decode.push_back({sequence, length, tokens.back(), true});
    alone.push_back(rig.run({decode.back()}).front());
  }
  for (std::int32_t batch : {2, 3, 4, 5, 7, 8, 13, 16, 31, 33, kMaxBatch}) {
    for (std::int32_t first = 0; first + batch <= kMaxBatch; first += batch) {
      const std::vector<RigRow> rows(decode.begin() + first, decode.begin() + first + batch);
      const std::vector<Logits> together = rig.run(rows);
      for (std::int32_t i = 0; i < batch; ++i) {
        ASSERT_EQ(together[static_cast<std::size_t>(i)], alone[static_cast<std::size_t>(first + i)])
            << "row " << first + i << " in a batch of " << batch;
      }
    }
  }
}

TEST_P(NumericsContract, ABatchIsOneProductOfManyRows) {
  RigOptions rig_options = options();
  rig_options.sequences = kMaxBatch;
  ModelRig rig = make_rig(rig_options);
  const auto products_of = [&](std::int32_t batch) {
    std::vector<RigRow> rows;
    for (std::int32_t i = 0; i < batch; ++i) rows.push_back({i, 0, 7 + i, true});
    const device::DeviceCounters before = rig.counters();
    rig.run(rows);
    const device::DeviceCounters after = rig.counters();
    return std::pair(after.linear_calls - before.linear_calls,
                     after.linear_rows - before.linear_rows);
  };
  const auto [calls_of_one, rows_of_one] = products_of(1);
  const auto [calls_of_many, rows_of_many] = products_of(kMaxBatch);
  EXPECT_EQ(calls_of_many, calls_of_one);
  EXPECT_EQ(rows_of_many, kMaxBatch * rows_of_one);
}

TEST_P(NumericsContract, ThreadsPagesAndAddressesChangeNoBit) {
  ModelRig reference = make_rig(options());
  const auto prompt = random_tokens(4, kPromptTokens, reference.spec().vocabulary);
  const std::vector<Logits> expected = reference.prefill_all(0, prompt);
  for (std::int32_t threads : {1, 2, 3}) {
    for (std::int32_t page_tokens : {16, 48, 64, 256}) {
      RigOptions other = options();
      other.threads = threads;
      other.page_tokens = page_tokens;
      other.sequences = 3;
      other.page_order_seed = static_cast<std::uint64_t>(threads * 1000 + page_tokens);
      ModelRig rig = make_rig(other);
      ASSERT_EQ(rig.prefill_all(1, prompt), expected)
          << threads << " threads, pages of " << page_tokens << " tokens";
    }
  }
}

// Streams that run late and out of step, tagged addresses, and memory that starts as NaN: a missing
// wait, a host read of device memory or a read of what was never written would show.
TEST_P(NumericsContract, ChaosStreamsAndPoisonedMemoryChangeNoBit) {
  ModelRig reference = make_rig(options());
  const auto prompt = random_tokens(5, 70, reference.spec().vocabulary);
  const std::vector<Logits> expected = reference.prefill_all(0, prompt);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    RigOptions chaos = options();
    chaos.device = {.streams = device::StreamMode::kDeferred,
                    .addresses = device::AddressMode::kTagged,
                    .fresh = device::FreshMemory::kNaN,
                    .isa = device::IsaChoice::kBest,
                    .chaos_seed = seed};
    ModelRig rig = make_rig(chaos);
    ASSERT_EQ(rig.prefill_all(0, prompt), expected) << "seed " << seed;
  }
}

const Configuration kConfigurations[] = {
    {"F32", "llama3_rope", device::Compute::kF32, base::DType::kF32, 1},
    {"Bf16", "llama3_rope", device::Compute::kBF16, base::DType::kBF16, 1},
    {"F32WithBf16Rows", "llama3_rope", device::Compute::kF32, base::DType::kBF16, 1},
    {"F32OnTwoRanks", "llama3_rope", device::Compute::kF32, base::DType::kF32, 2},
    {"Int8", "tiny_llama.gguf", device::Compute::kInt8, base::DType::kBF16, 1},
    {"Int16", "tiny_llama.gguf", device::Compute::kInt16, base::DType::kBF16, 1},
    {"Int8OnTwoRanks", "tiny_llama.gguf", device::Compute::kInt8, base::DType::kBF16, 2},
};

INSTANTIATE_TEST_SUITE_P(Types, NumericsContract, testing::ValuesIn(kConfigurations),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hisparse::test
