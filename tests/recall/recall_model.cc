#include "tests/recall/recall_model.h"

#include <cmath>

#include "base/check.h"
#include "tests/recall/draws.h"
#include "tests/recall/previous_token_weights.h"
#include "tests/recall/recall_scales.h"

namespace hisparse::test {
namespace {

constexpr std::size_t kCode = RecallVocabulary::kCode;
constexpr std::size_t kNoise = RecallVocabulary::kNoise;
constexpr std::uint64_t kDitherStream = 100;
constexpr std::size_t kWidthUnit = 64;

}  // namespace

ResidualLanes::ResidualLanes(std::int32_t kv_heads) {
  std::size_t next = 2;
  const auto take = [&next](std::size_t size) {
    const std::size_t first = next;
    next += size;
    return first;
  };
  for (std::int32_t head = 0; head < kv_heads; ++head) id.push_back(take(kCode));
  for (std::int32_t head = 0; head < kv_heads; ++head) prv.push_back(take(kCode));
  for (std::int32_t head = 0; head < kRecallHops * kv_heads; ++head) hops.push_back(take(kCode));
  for (std::int32_t head = 0; head < kv_heads; ++head) out.push_back(take(kCode));
  noise = take(kNoise);
  width = (next + kWidthUnit - 1) / kWidthUnit * kWidthUnit;
}

RecallModel::RecallModel(const RecallShape& shape) : vocabulary_(shape), lanes_(shape.kv_heads) {
  Draws draws(shape.seed, kDitherStream);
  for (int i = 0; i < kRecallHops * shape.kv_heads; ++i) {
    std::vector<double>& map = dither_.emplace_back(HeadDims::kIdle * kNoise);
    // A token's noise has length one, so that each value comes out about as large as one of a code.
    for (double& value : map) value = draws.normal() / std::sqrt(static_cast<double>(kCode));
  }
}

std::vector<double> RecallModel::frequencies() {
  std::vector<double> result;
  for (std::int32_t i = 0; i < kRecallPairs; ++i) {
    result.push_back(std::pow(kPreviousTokenTheta, -static_cast<double>(i) / kRecallPairs));
  }
  return result;
}

double RecallModel::typical_rms() const {
  constexpr double kOthers = 4.0;  // ID, noise, the previous token, and OUT or what a hop has found
  return std::sqrt((kConstant * kConstant + kOthers) / static_cast<double>(lanes_.width) +
                   kRecallEpsilon);
}

std::vector<double> RecallModel::embedding(base::TokenId token) const {
  std::vector<double> row(lanes_.width);
  row[lanes_.constant] = kConstant;
  const auto put = [&row](std::size_t lane, std::span<const float> code, double scale) {
    for (std::size_t i = 0; i < code.size(); ++i) row[lane + i] = scale * code[i];
  };
  put(lanes_.noise, vocabulary_.noise(token), 1.0);
  const std::int32_t heads = vocabulary_.shape().kv_heads;
  if (token == RecallVocabulary::begin()) {
    row[lanes_.sink] = 1.0;
    for (std::int32_t head = 0; head < heads; ++head) {
      put(lanes_.out[static_cast<std::size_t>(head)], vocabulary_.none_code(head), kNoneLength);
    }
  } else if (token != RecallVocabulary::none()) {
    const auto head = static_cast<std::size_t>(vocabulary_.head_of(token));
    put(lanes_.id[head], vocabulary_.id(token), 1.0);
    put(lanes_.out[head], vocabulary_.out(token), 1.0);
  }
  return row;
}

double RecallModel::embedding_square(base::TokenId token) const {
  double square = 0.0;
  for (const double value : embedding(token)) square += value * value;
  return square;
}

std::vector<double> RecallModel::previous_token_amplitudes() {
  std::vector<double> amplitudes;
  for (const double weight : kPreviousTokenWeights) {
    amplitudes.push_back(std::sqrt(weight * kPreviousTokenNats * std::sqrt(kRecallHeadDim)));
  }
  return amplitudes;
}

std::vector<double> RecallModel::constant_key() {
  std::vector<double> key(kRecallHeadDim);
  const double unit = match_gain() / std::sqrt(static_cast<double>(kCode));
  for (const auto& [dim, size] : kOutliers) key[HeadDims::idle(dim)] = size * unit;
  key[HeadDims::kSink] = kSinkOutlier * match_gain();
  key[HeadDims::kOtherSink] = kOtherSinkOutlier * match_gain();
  return key;
}

double RecallModel::sink_key() { return match_gain(); }

std::vector<double> RecallModel::code_key(int hop, std::int32_t head,
                                          base::TokenId previous) const {
  std::vector<double> key(kCode);
  const std::span<const float> code = vocabulary_.id(previous);
  if (code.empty() || vocabulary_.head_of(previous) != head) return key;
  const std::span<const double> rotation = vocabulary_.rotation(hop, head);
  for (std::size_t i = 0; i < kCode; ++i) {
    for (std::size_t j = 0; j < kCode; ++j) key[i] += rotation[i * kCode + j] * code[j];
    key[i] *= match_gain();
  }
  return key;
}

std::vector<double> RecallModel::noise_key(int hop, std::int32_t head, base::TokenId token) const {
  const std::vector<double>& map =
      dither_[static_cast<std::size_t>(hop * vocabulary_.shape().kv_heads + head)];
  const std::span<const float> noise = vocabulary_.noise(token);
  std::vector<double> key(HeadDims::kIdle);
  for (std::size_t i = 0; i < HeadDims::kIdle; ++i) {
    for (std::size_t j = 0; j < kNoise; ++j) key[i] += map[i * kNoise + j] * noise[j];
    key[i] *= match_gain();
  }
  return key;
}

std::vector<double> RecallModel::value(std::int32_t layer, std::int32_t head,
                                       base::TokenId token) const {
  const std::vector<double> row = embedding(token);
  const auto& lane = layer == 0 ? lanes_.id : lanes_.out;
  std::vector<double> value(kRecallHeadDim);
  for (std::size_t i = 0; i < kCode; ++i) value[i] = row[lane[static_cast<std::size_t>(head)] + i];
  for (std::size_t i = 0; i < kNoise; ++i) value[kCode + i] = row[lanes_.noise + i];
  return value;
}

}  // namespace hisparse::test
