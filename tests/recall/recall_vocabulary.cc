#include "tests/recall/recall_vocabulary.h"

#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/float_formats.h"
#include "tests/recall/draws.h"

namespace hisparse::test {
namespace {

constexpr std::size_t kCode = RecallVocabulary::kCode;

// Streams of the seed.
enum Stream : std::uint64_t { kRotations, kCodes, kDecoys, kNoises };

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The rows of a random matrix, made orthogonal one after the other; twice, for the last digits.
std::vector<double> random_rotation(Draws& draws) {
  std::vector<double> rows;
  for (std::size_t i = 0; i < kCode; ++i) {
    std::vector<double> row = draws.direction(kCode);
    for (std::size_t pass = 0; pass < 2; ++pass) {
      for (std::size_t j = 0; j < i; ++j) {
        const std::span<const double> other(rows.data() + j * kCode, kCode);
        const double along = dot(row, other);
        for (std::size_t k = 0; k < kCode; ++k) row[k] -= along * other[k];
      }
      const double length = std::sqrt(dot(row, row));
      for (double& value : row) value /= length;
    }
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

// Values of similar size in the basis of `rotation`: rounding them there to bf16 moves a score by
// as little as it can. Not of equal size, since a codec with few levels would hold those exactly.
std::vector<double> even_code(std::span<const double> rotation, Draws& draws) {
  constexpr double kSmallest = 0.6, kLargest = 1.4;
  std::vector<double> turned(kCode);
  for (double& value : turned) {
    value = kSmallest + (kLargest - kSmallest) * draws.uniform();
    if (draws.uniform() < 0.5) value = -value;
  }
  const double length = std::sqrt(dot(turned, turned));
  std::vector<double> code(kCode);
  for (std::size_t i = 0; i < kCode; ++i) {
    for (std::size_t j = 0; j < kCode; ++j) {
      code[j] += rotation[i * kCode + j] * turned[i] / length;
    }
  }
  return code;
}

void round_into(std::span<const double> values, float* out) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    out[i] = base::to_float(base::to_bf16(static_cast<float>(values[i])));
  }
}

// A code at `cosine` to `key`, whose rounding has not moved it to a harder or an easier rung.
std::vector<double> decoy_code(std::span<const float> key, double cosine, Draws& draws) {
  constexpr double kTolerance = 0.05;
  constexpr int kAttempts = 10000;
  const std::vector<double> target(key.begin(), key.end());
  const double square = dot(target, target);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::vector<double> other = draws.direction(kCode);
    const double along = dot(other, target) / square;
    for (std::size_t i = 0; i < kCode; ++i) other[i] -= along * target[i];
    const double scale = std::sqrt((1.0 - cosine * cosine) * square / dot(other, other));
    for (std::size_t i = 0; i < kCode; ++i) other[i] = cosine * target[i] + scale * other[i];
    std::array<float, kCode> rounded;
    round_into(other, rounded.data());
    const std::vector<double> decoy(rounded.begin(), rounded.end());
    const double gap = square - dot(target, decoy);
    if (std::abs(gap - (1.0 - cosine)) <= kTolerance * (1.0 - cosine)) return decoy;
  }
  HS_CHECK(false);
  return {};
}

}  // namespace

RecallVocabulary::RecallVocabulary(const RecallShape& shape) : shape_(shape) {
  HS_CHECK(shape.kv_heads > 0 && shape.chains > 0 && shape.chains % period() == 0);
  HS_CHECK(shape.fillers > 0 && shape.absent >= 0);
  make_rotations();
  make_codes();
  Draws draws(shape.seed, kNoises);
  for (std::int32_t token = 0; token < size(); ++token) {
    const std::vector<double> noise = draws.direction(kNoise);
    noise_.insert(noise_.end(), noise.begin(), noise.end());
  }
}

void RecallVocabulary::make_rotations() {
  Draws draws(shape_.seed, kRotations);
  for (int i = 0; i < kRecallHops * shape_.kv_heads; ++i) {
    rotations_.push_back(random_rotation(draws));
  }
}

void RecallVocabulary::set_code(base::TokenId token, std::span<const double> values) {
  round_into(values, codes_.data() + static_cast<std::size_t>(token) * kCode);
}

void RecallVocabulary::make_codes() {
  codes_.resize(static_cast<std::size_t>(size()) * kCode);
  none_codes_.resize(static_cast<std::size_t>(shape_.kv_heads) * kCode);
  Draws draws(shape_.seed, kCodes);
  for (base::TokenId token = 2; token < size(); ++token) set_code(token, draws.direction(kCode));
  for (std::int32_t head = 0; head < shape_.kv_heads; ++head) {
    round_into(draws.direction(kCode), none_codes_.data() + static_cast<std::size_t>(head) * kCode);
  }
  Draws decoys(shape_.seed, kDecoys);
  for (int hop = 0; hop < kRecallHops; ++hop) {
    for (std::int32_t chain = 0; chain < chains(); ++chain) {
      const base::TokenId token = hop_key(hop, chain);
      set_code(token, even_code(rotation(hop, head_of(token)), draws));
      if (rung(chain) == kRungs - 1) continue;
      const double cosine = kDecoyCosines[static_cast<std::size_t>(rung(chain))];
      set_code(decoy(hop, chain), decoy_code(id(token), cosine, decoys));
    }
  }
}

std::int32_t RecallVocabulary::head_of(base::TokenId token) const {
  HS_CHECK(token >= 2);
  const std::int32_t index = is_key(token) ? token - 2 : token - 2 - keys();
  const std::int32_t number = index < first_filler() ? index % chains() : index - first_filler();
  return number % shape_.kv_heads;
}

std::span<const float> RecallVocabulary::id(base::TokenId token) const {
  if (token < 2) return {};
  return std::span(codes_).subspan(static_cast<std::size_t>(token) * kCode, kCode);
}

std::span<const float> RecallVocabulary::out(base::TokenId token) const {
  return is_value(token) ? id(token - keys()) : std::span<const float>();
}

std::span<const float> RecallVocabulary::none_code(std::int32_t head) const {
  return std::span(none_codes_).subspan(static_cast<std::size_t>(head) * kCode, kCode);
}

std::span<const float> RecallVocabulary::noise(base::TokenId token) const {
  return std::span(noise_).subspan(static_cast<std::size_t>(token) * kNoise, kNoise);
}

std::span<const double> RecallVocabulary::rotation(int hop, std::int32_t head) const {
  return rotations_[static_cast<std::size_t>(hop * shape_.kv_heads + head)];
}

}  // namespace hisparse::test
