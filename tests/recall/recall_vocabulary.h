// The tokens of the recall fixture and their codes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace hisparse::test {

inline constexpr int kRecallHops = 3;

// Cosines between a needle's key and the key of its decoy. The last rung has no decoy.
inline constexpr std::array<double, 7> kDecoyCosines = {0.999, 0.997, 0.99, 0.98, 0.95, 0.9, 0.8};
inline constexpr int kRungs = static_cast<int>(kDecoyCosines.size()) + 1;

// Sizes of a fixture; everything in it follows from these.
struct RecallShape {
  std::uint64_t seed = 1;
  std::int32_t kv_heads = 1;  // each with chains of its own
  std::int32_t chains = 256;  // a multiple of kRungs * kv_heads
  std::int32_t fillers = 256;
  std::int32_t absent = 16;  // keys that no context holds
};

// Keys, one value token for each key ("value j denotes key j"), a token for the begin and one that
// answers NONE. A chain leads over kRecallHops keys to an answer: `k0 v(k1) ... k1 v(k2) ... k2
// v(k3)`. The keys of hop h are matched by the hop layer h alone. A decoy is a key at a cosine to a
// key of a hop; the cosine follows from the chain's number (rung()).
//
// Every token has an ID code: what a follower of the token copies. A value token has an OUT code:
// the code of the key that it denotes. Codes belong to one KV head and are bf16 values of length
// one (up to their rounding), so that a V row in bf16 holds them exactly.
class RecallVocabulary final {
 public:
  // Dimensions of a code, and of the noise of a token.
  static constexpr std::size_t kCode = 54;
  static constexpr std::size_t kNoise = 64;

  explicit RecallVocabulary(const RecallShape& shape);

  const RecallShape& shape() const { return shape_; }
  std::int32_t size() const { return 2 + 2 * keys(); }
  static base::TokenId begin() { return 0; }
  static base::TokenId none() { return 1; }
  base::TokenId hop_key(int hop, std::int32_t chain) const { return key(hop * chains() + chain); }
  base::TokenId answer(std::int32_t chain) const { return hop_key(kRecallHops, chain); }
  base::TokenId decoy(int hop, std::int32_t chain) const {
    return hop_key(kRecallHops + 1 + hop, chain);
  }
  base::TokenId filler(std::int32_t index) const { return key(first_filler() + index); }
  base::TokenId absent(std::int32_t index) const { return filler(shape_.fillers + index); }
  base::TokenId value_of(base::TokenId key) const { return key + keys(); }

  std::int32_t rung(std::int32_t chain) const { return chain / shape_.kv_heads % kRungs; }
  // Chains that differ by a multiple of this have the same rung and KV head.
  std::int32_t period() const { return kRungs * shape_.kv_heads; }

  bool is_key(base::TokenId token) const { return token >= 2 && token < 2 + keys(); }
  bool is_value(base::TokenId token) const { return token >= 2 + keys(); }
  // KV head whose code the token has; not for begin() and none().
  std::int32_t head_of(base::TokenId token) const;
  std::span<const float> id(base::TokenId token) const;   // [kCode]; empty for begin() and none()
  std::span<const float> out(base::TokenId token) const;  // [kCode]; empty unless is_value()
  std::span<const float> none_code(std::int32_t head) const;  // [kCode]
  std::span<const float> noise(base::TokenId token) const;    // [kNoise], of length one
  // Orthogonal [kCode, kCode]: how hop layer `hop` turns the codes of a KV head before it matches
  // them.
  std::span<const double> rotation(int hop, std::int32_t head) const;

 private:
  std::int32_t chains() const { return shape_.chains; }
  std::int32_t first_filler() const { return (2 * kRecallHops + 1) * chains(); }
  std::int32_t keys() const { return first_filler() + shape_.fillers + shape_.absent; }
  static base::TokenId key(std::int32_t index) { return 2 + index; }
  void make_rotations();
  void make_codes();
  void set_code(base::TokenId token, std::span<const double> values);

  RecallShape shape_;
  std::vector<std::vector<double>> rotations_;  // [hop, head]
  std::vector<float> codes_;                    // [tokens, kCode]
  std::vector<float> none_codes_;               // [heads, kCode]
  std::vector<float> noise_;                    // [tokens, kNoise]
};

}  // namespace hisparse::test
