// The hand-built transformer of the recall fixture: a Llama-type decoder of four layers whose
// weights follow from a seed, as a folder that the model code reads
// (../reference/kv_science.md section 3.2; README.md here).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/recall/recall_vocabulary.h"

namespace hisparse::test {

inline constexpr std::int32_t kRecallLayers = 1 + kRecallHops;
inline constexpr std::int32_t kRecallHeadDim = 128;
inline constexpr std::int32_t kRecallPairs = kRecallHeadDim / 2;
inline constexpr double kRecallEpsilon = 1e-6;

// Where the parts of a token's residual lie. The constant is far larger than the rest, so that the
// norm is nearly the same for every token.
struct ResidualLanes {
  explicit ResidualLanes(std::int32_t kv_heads);

  std::size_t constant = 0;
  std::size_t sink = 1;           // 1 for the begin of the text, else 0
  std::vector<std::size_t> id;    // [head] code of the token
  std::vector<std::size_t> prv;   // [head] code of the token before, from layer 0
  std::vector<std::size_t> hops;  // [hop, head] what the hop layers have found
  std::vector<std::size_t> out;   // [head] code of the key that the token denotes
  std::size_t noise = 0;
  std::size_t width = 0;  // d_model
};

// What a head's keys and values are made of. Layer 0 finds the token before by position alone. The
// hop layers match codes in the rotary pairs that turn so slowly that they tell nothing of the
// position; the other pairs of their keys hold noise and a few constants, which queries do not
// read.
struct HeadDims {
  static constexpr std::int32_t kFirstCodePair = 36;
  static constexpr std::int32_t kSinkPair = kRecallPairs - 1;
  static constexpr std::size_t kIdle = 2 * kFirstCodePair;
  static_assert(2 * (kSinkPair - kFirstCodePair) == RecallVocabulary::kCode);

  static constexpr std::size_t code(std::size_t i) {
    return in_pairs(i, kFirstCodePair, kSinkPair);
  }
  static constexpr std::size_t idle(std::size_t i) { return in_pairs(i, 0, kFirstCodePair); }
  static constexpr std::size_t kSink = kSinkPair;
  static constexpr std::size_t kOtherSink = kSinkPair + kRecallPairs;

 private:
  // The dimension of value `i` of those in the pairs [first, end).
  static constexpr std::size_t in_pairs(std::size_t i, std::size_t first, std::size_t end) {
    const std::size_t pairs = end - first;
    return first + i % pairs + i / pairs * kRecallPairs;
  }
};

class RecallModel final {
 public:
  explicit RecallModel(const RecallShape& shape);

  const RecallVocabulary& vocabulary() const { return vocabulary_; }
  const ResidualLanes& lanes() const { return lanes_; }

  // config.json and model.safetensors (F32). The folder must exist.
  absl::Status write(const std::string& folder) const;

  // Inverse rotary frequencies [kRecallPairs].
  static std::vector<double> frequencies();

  // The root mean square of a typical residual: scales of the weights undo it.
  double typical_rms() const;
  // The length of a token's embedding, squared.
  double embedding_square(base::TokenId token) const;
  // One pair of the keys of layer 0 has these lengths before rotation [kRecallPairs].
  static std::vector<double> previous_token_amplitudes();
  // A hop layer's keys before rotation, with a residual of typical_rms(): the constants in all of
  // them, what `previous` gives ([kCode], into HeadDims::code) and what the token's noise gives
  // ([kIdle], into HeadDims::idle). The begin of the text adds sink_key().
  static std::vector<double> constant_key();  // [kRecallHeadDim]
  std::vector<double> code_key(int hop, std::int32_t head, base::TokenId previous) const;
  std::vector<double> noise_key(int hop, std::int32_t head, base::TokenId token) const;
  static double sink_key();  // into HeadDims::kSink
  // What `head` of layer `layer` has as its value [kRecallHeadDim].
  std::vector<double> value(std::int32_t layer, std::int32_t head, base::TokenId token) const;

 private:
  friend class RecallTensors;
  std::vector<double> embedding(base::TokenId token) const;  // [width]

  RecallVocabulary vocabulary_;
  ResidualLanes lanes_;
  std::vector<std::vector<double>> dither_;  // [hop, head] of [kIdle, kNoise]
};

}  // namespace hisparse::test
