#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "cpu_test_support.h"

namespace hisparse::device {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<base::TokenId> sample(TestDevice& device, const std::vector<float>& logits,
                                  const std::vector<SampleRow>& rows) {
  Buffer logits_buffer = device.upload(logits);
  Buffer rows_buffer = device.upload(rows);
  Buffer tokens = device.allocate(rows.size() * sizeof(base::TokenId));
  device.device->sample({.logits = logits_buffer.as<float>(),
                         .rows_params = rows_buffer.as<SampleRow>(),
                         .tokens = tokens.as<base::TokenId>(),
                         .rows = static_cast<std::int64_t>(rows.size()),
                         .vocabulary = static_cast<std::int64_t>(logits.size() / rows.size())},
                        *device.stream);
  return device.download<base::TokenId>(tokens);
}

// One logit row drawn `draws` times under consecutive counters.
std::vector<base::TokenId> draw_many(const std::vector<float>& logits, SampleRow row, int draws) {
  TestDevice device;
  std::vector<float> all;
  std::vector<SampleRow> rows;
  for (int i = 0; i < draws; ++i) {
    row.counter = static_cast<std::uint64_t>(i);
    rows.push_back(row);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return sample(device, all, rows);
}

std::set<base::TokenId> distinct(const std::vector<base::TokenId>& tokens) {
  return {tokens.begin(), tokens.end()};
}

TEST(CpuSample, GreedyTakesTheLowestOfTies) {
  TestDevice device;
  EXPECT_EQ(sample(device, {1, 5, 5, 2, 5, 0}, {SampleRow{}}).front(), 1);
  EXPECT_EQ(sample(device, {-3, -3, -3}, {SampleRow{}}).front(), 0);
  EXPECT_EQ(sample(device, {1, kInfinity, kInfinity}, {SampleRow{}}).front(), 1);
}

TEST(CpuSample, BrokenLogitsStillYieldAToken) {
  TestDevice device;
  for (float temperature : {0.0f, 1.0f}) {
    for (float top_p : {1.0f, 0.5f}) {
      for (std::int32_t top_k : {0, 2}) {
        const SampleRow row = {.temperature = temperature, .top_p = top_p, .top_k = top_k};
        EXPECT_EQ(sample(device, {NAN, NAN, NAN}, {row}).front(), 0);
        EXPECT_EQ(sample(device, {NAN, -1e30f, NAN}, {row}).front(), 1);
        EXPECT_EQ(sample(device, {-kInfinity, -kInfinity, -kInfinity}, {row}).front(), 0);
        EXPECT_EQ(sample(device, {-kInfinity, NAN, 3.0f}, {row}).front(), 2);
        EXPECT_EQ(sample(device, {0.0f, kInfinity, NAN}, {row}).front(), 1);
      }
    }
  }
}

TEST(CpuSample, TopKOneAndTinyTopPAndTinyTemperatureAreGreedy) {
  const std::vector<float> logits = {0.1f, 0.2f, 0.3f, 0.3f, 0.0f, -1.0f};
  for (const SampleRow& row :
       {SampleRow{.temperature = 2.0f, .top_k = 1}, SampleRow{.temperature = 2.0f, .top_p = 1e-9f},
        SampleRow{.temperature = 2.0f, .top_p = 0.2f, .top_k = 3}}) {
    EXPECT_EQ(distinct(draw_many(logits, row, 200)), std::set<base::TokenId>{2});
  }
  // A temperature of almost nothing leaves the two equal largest.
  const SampleRow cold = {.temperature = 1e-40f};
  EXPECT_EQ(distinct(draw_many(logits, cold, 200)), (std::set<base::TokenId>{2, 3}));
}

TEST(CpuSample, TopKKeepsTheLargestWithTiesToTheLowestId) {
  const std::vector<float> logits = {1, 2, 2, 2, 0, 3};
  const SampleRow row = {.temperature = 1.0f, .top_k = 3};
  EXPECT_EQ(distinct(draw_many(logits, row, 500)), (std::set<base::TokenId>{1, 2, 5}));
}

constexpr std::int64_t kLargeVocabulary = 49152;

// Ids by falling logit, ties by rising id.
std::vector<base::TokenId> sorted_ids(const std::vector<float>& logits) {
  std::vector<base::TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](base::TokenId a, base::TokenId b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  return ids;
}

TEST(CpuSample, CutsOfALargeVocabularyEqualThoseOfAFullSort) {
  std::vector<float> logits = random_floats(kLargeVocabulary, 21);
  // Many ties: a sixteenth is the step.
  for (float& logit : logits) logit = std::round(logit * 48.0f) / 16.0f;
  const auto ids = sorted_ids(logits);
  for (std::int32_t top_k : {5, 300}) {
    const auto drawn = distinct(draw_many(logits, {.temperature = 4.0f, .top_k = top_k}, 400));
    const std::set<base::TokenId> kept(ids.begin(), ids.begin() + top_k);
    for (base::TokenId token : drawn) EXPECT_TRUE(kept.contains(token)) << top_k;
    EXPECT_GT(drawn.size(), static_cast<std::size_t>(std::min(top_k - 1, 100)));
  }
  double total = 0.0;
  const auto weight = [&](base::TokenId id) {
    return std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]));
  };
  for (base::TokenId id : ids) total += weight(id);
  for (float top_p : {0.02f, 0.5f}) {
    std::set<base::TokenId> kept;
    double mass = 0.0;
    for (std::size_t i = 0; mass < total * top_p; ++i) {
      mass += weight(ids[i]);
      kept.insert(ids[i]);
    }
    const auto drawn = distinct(draw_many(logits, {.temperature = 1.0f, .top_p = top_p}, 400));
    std::size_t strangers = 0;
    for (base::TokenId token : drawn) strangers += kept.contains(token) ? 0 : 1;
    // The last one depends on the rounding of the sums.
    EXPECT_LE(strangers, 1u) << top_p;
    EXPECT_GT(drawn.size(), std::min<std::size_t>(kept.size() / 2, 100)) << top_p;
  }
}

TEST(CpuSample, AFlatDistributionIsCutById) {
  const std::vector<float> logits(kLargeVocabulary, 1.0f);
  for (base::TokenId token : draw_many(logits, {.temperature = 1.0f, .top_p = 0.25f}, 300)) {
    EXPECT_LT(token, kLargeVocabulary / 4 + 1);
  }
}

TEST(CpuSample, TopPKeepsTheSmallestPrefixThatReachesTheMass) {
  // Probabilities 0.5, 0.25, 0.125, 0.0625, 0.0625, in shuffled order.
  const float two = std::log(2.0f);
  const std::vector<float> logits = {-3 * two, -1 * two, -4 * two, -2 * two, -4 * two};
  const auto kept = [&](float top_p) {
    return distinct(draw_many(logits, {.temperature = 1.0f, .top_p = top_p}, 800));
  };
  EXPECT_EQ(kept(0.49f), (std::set<base::TokenId>{1}));
  EXPECT_EQ(kept(0.6f), (std::set<base::TokenId>{1, 3}));
  EXPECT_EQ(kept(0.8f), (std::set<base::TokenId>{0, 1, 3}));
  EXPECT_EQ(kept(0.9f), (std::set<base::TokenId>{0, 1, 2, 3}));
  EXPECT_EQ(kept(1.0f), (std::set<base::TokenId>{0, 1, 2, 3, 4}));
}

// Mass that lies beyond the first sorted front.
TEST(CpuSample, TopPWorksOverAFlatVocabulary) {
  const std::vector<float> logits(5000, 0.25f);
  const auto tokens = draw_many(logits, {.temperature = 1.0f, .top_p = 0.5f}, 300);
  EXPECT_LT(*std::max_element(tokens.begin(), tokens.end()), 2501);
  EXPECT_GT(*std::max_element(tokens.begin(), tokens.end()), 2200);
}

double chi_square(const std::vector<base::TokenId>& tokens, const std::map<int, double>& expected) {
  std::map<int, int> counts;
  for (base::TokenId token : tokens) ++counts[token];
  for (const auto& [token, count] : counts) EXPECT_TRUE(expected.contains(token)) << token;
  double sum = 0.0;
  for (const auto& [token, probability] : expected) {
    const double mean = probability * static_cast<double>(tokens.size());
    sum += (counts[token] - mean) * (counts[token] - mean) / mean;
  }
  return sum;
}

std::map<int, double> softmax(const std::vector<float>& logits, double temperature,
                              const std::vector<int>& kept) {
  std::map<int, double> out;
  double sum = 0.0;
  for (int token : kept) sum += out[token] = std::exp(logits[token] / temperature);
  for (auto& [token, probability] : out) probability /= sum;
  return out;
}

TEST(CpuSample, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {0.5f, -1.0f, 1.5f, 0.0f, 0.7f, -0.3f};
  constexpr int kDraws = 20000;
  constexpr double kLimit = 25.0;  // 5 degrees of freedom: passed by chance but once in 7000
  const SampleRow plain = {.temperature = 0.8f, .seed = 42};
  EXPECT_LT(chi_square(draw_many(logits, plain, kDraws), softmax(logits, 0.8, {0, 1, 2, 3, 4, 5})),
            kLimit);
  const SampleRow cut = {.temperature = 1.3f, .top_k = 4, .seed = 43};
  EXPECT_LT(chi_square(draw_many(logits, cut, kDraws), softmax(logits, 1.3, {0, 2, 3, 4})), kLimit);
  const SampleRow both = {.temperature = 1.0f, .top_p = 0.8f, .top_k = 4, .seed = 44};
  EXPECT_LT(chi_square(draw_many(logits, both, kDraws), softmax(logits, 1.0, {0, 2, 4})), kLimit);
}

TEST(CpuSample, SameSeedAndCounterGiveTheSameTokenInEveryBatch) {
  constexpr std::int64_t kVocabulary = 1000;
  constexpr std::int64_t kRows = 40;
  const auto logits = random_floats(kRows * kVocabulary, 5);
  std::vector<SampleRow> rows;
  for (std::int64_t r = 0; r < kRows; ++r) {
    rows.push_back({.temperature = 1.5f,
                    .top_p = r % 2 == 0 ? 1.0f : 0.9f,
                    .top_k = r % 3 == 0 ? 50 : 0,
                    .seed = static_cast<std::uint64_t>(r),
                    .counter = 7});
  }
  for (IsaChoice isa : isa_levels()) {
    TestDevice device(isa, 3);
    const auto together = sample(device, logits, rows);
    for (std::int64_t r = 0; r < kRows; ++r) {
      const auto row = row_of(logits, r, kVocabulary);
      EXPECT_EQ(sample(device, {row.begin(), row.end()}, {rows[r]}).front(), together[r]);
    }
    EXPECT_GT(distinct(together).size(), 20u);
  }
}

}  // namespace
}  // namespace hisparse::device
