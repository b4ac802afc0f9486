#include "tests/recall/recall_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float_formats.h"

namespace hisparse::test {
namespace {

constexpr std::size_t kCode = RecallVocabulary::kCode;
constexpr std::size_t kHead = kRecallHeadDim;

void store(std::span<const float> values, base::DType dtype, std::byte* out) {
  if (dtype == base::DType::kF32) {
    std::memcpy(out, values.data(), values.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const base::bf16 rounded = base::to_bf16(values[i]);
    std::memcpy(out + i * sizeof(rounded), &rounded, sizeof(rounded));
  }
}

// As the device does it: angles in double, products in f32.
void rotate(std::span<float> key, std::int64_t position, std::span<const double> frequencies) {
  for (std::size_t i = 0; i < kRecallPairs; ++i) {
    const double angle = static_cast<double>(position) * frequencies[i];
    const auto cosine = static_cast<float>(std::cos(angle));
    const auto sine = static_cast<float>(std::sin(angle));
    const float low = key[i];
    const float high = key[i + kRecallPairs];
    key[i] = low * cosine - high * sine;
    key[i + kRecallPairs] = high * cosine + low * sine;
  }
}

}  // namespace

RecallRows::RecallRows(const RecallModel& model, const RecallContext& context)
    : context_(context),
      heads_(model.vocabulary().shape().kv_heads),
      typical_rms_(model.typical_rms()),
      width_(static_cast<double>(model.lanes().width)),
      frequencies_(RecallModel::frequencies()) {
  const RecallVocabulary& vocabulary = model.vocabulary();
  for (base::TokenId token = 0; token < vocabulary.size(); ++token) {
    squares_.push_back(model.embedding_square(token));
    double square = 0.0;
    for (const float value : vocabulary.id(token)) square += static_cast<double>(value) * value;
    code_squares_.push_back(square);
  }
  for (std::int32_t layer = 0; layer < kRecallLayers; ++layer) {
    for (std::int32_t head = 0; head < heads_; ++head) {
      HeadParts& part = parts_.emplace_back();
      const auto append = [](std::vector<float>& to, const std::vector<double>& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      for (base::TokenId token = 0; token < vocabulary.size(); ++token) {
        append(part.values, model.value(layer, head, token));
        if (layer == 0) continue;
        append(part.codes, model.code_key(layer - 1, head, token));
        append(part.noises, model.noise_key(layer - 1, head, token));
      }
    }
  }
}

// In front of the first token there is none; it sees itself.
base::TokenId RecallRows::token_before(std::int64_t position) const {
  return context_.tokens[static_cast<std::size_t>(std::max<std::int64_t>(position - 1, 0))];
}

float RecallRows::scale(std::int32_t layer, std::int64_t position) const {
  const base::TokenId token = context_.tokens[static_cast<std::size_t>(position)];
  double square = squares_[static_cast<std::size_t>(token)];
  if (layer > 0) square += code_squares_[static_cast<std::size_t>(token_before(position))];
  return static_cast<float>(typical_rms_ / std::sqrt(square / width_ + kRecallEpsilon));
}

void RecallRows::make_key(std::int32_t layer, std::int32_t head, std::int64_t position,
                          Row& key) const {
  key.fill(0.0f);
  if (layer == 0) {
    static const std::vector<double> amplitudes = RecallModel::previous_token_amplitudes();
    std::copy(amplitudes.begin(), amplitudes.end(), key.begin());
    return;
  }
  static const std::vector<double> constants = RecallModel::constant_key();
  std::copy(constants.begin(), constants.end(), key.begin());
  const HeadParts& part = parts(layer, head);
  const base::TokenId token = context_.tokens[static_cast<std::size_t>(position)];
  const float* code = part.codes.data() + static_cast<std::size_t>(token_before(position)) * kCode;
  for (std::size_t i = 0; i < kCode; ++i) key[HeadDims::code(i)] += code[i];
  const float* noise = part.noises.data() + static_cast<std::size_t>(token) * HeadDims::kIdle;
  for (std::size_t i = 0; i < HeadDims::kIdle; ++i) key[HeadDims::idle(i)] += noise[i];
  if (token == RecallVocabulary::begin()) {
    key[HeadDims::kSink] += static_cast<float>(RecallModel::sink_key());
  }
}

void RecallRows::fill(const engine::KvRows& rows) {
  HS_CHECK(rows.head_dim == kRecallHeadDim && rows.first_kv_head + rows.kv_heads <= heads_);
  const std::size_t bytes = kHead * static_cast<std::size_t>(base::block_shape(rows.dtype).bytes);
  Row key, value;
  std::byte* keys = rows.keys.data();
  std::byte* values = rows.values.data();
  for (std::size_t i = 0; i < rows.tokens.size(); ++i) {
    const std::int64_t position = rows.first + static_cast<std::int64_t>(i);
    const base::TokenId token = context_.tokens.at(static_cast<std::size_t>(position));
    HS_CHECK(token == rows.tokens[i]);
    const float scaled = scale(rows.layer, position);
    for (std::int32_t head = 0; head < rows.kv_heads; ++head) {
      make_key(rows.layer, rows.first_kv_head + head, position, key);
      for (float& x : key) x *= scaled;
      rotate(key, position, frequencies_);
      store(key, rows.dtype, keys);
      const HeadParts& part = parts(rows.layer, rows.first_kv_head + head);
      std::copy_n(part.values.begin() + token * kRecallHeadDim, kHead, value.begin());
      for (float& x : value) x *= scaled;
      store(value, rows.dtype, values);
      keys += bytes;
      values += bytes;
    }
  }
}

}  // namespace hisparse::test
