// The KV rows of a recall context, computed from its tokens alone.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/kv_source.h"
#include "tests/recall/recall_context.h"
#include "tests/recall/recall_model.h"

namespace hisparse::test {

// A row follows from its token, the one before and its position, up to what the hops find at that
// token themselves: this makes the norm, and so all rows of the hop layers, smaller by at most 1 in
// 10000, and is left out.
//
// Serves one context: whoever asks for other tokens fails a CHECK. Immutable after it was made.
class RecallRows final : public engine::KvSource {
 public:
  // Both must outlive it.
  RecallRows(const RecallModel& model, const RecallContext& context);

  void fill(const engine::KvRows& rows) override;

 private:
  using Row = std::array<float, kRecallHeadDim>;
  // What tokens give to the rows of one head of one layer, for a residual of typical_rms().
  struct HeadParts {
    std::vector<float> codes;   // [tokens, kCode]: keys, from the token before; none in layer 0
    std::vector<float> noises;  // [tokens, kIdle]: keys; none in layer 0
    std::vector<float> values;  // [tokens, kRecallHeadDim]
  };
  const HeadParts& parts(std::int32_t layer, std::int32_t head) const {
    return parts_[static_cast<std::size_t>(layer * heads_ + head)];
  }
  base::TokenId token_before(std::int64_t position) const;
  float scale(std::int32_t layer, std::int64_t position) const;
  void make_key(std::int32_t layer, std::int32_t head, std::int64_t position, Row& key) const;

  const RecallContext& context_;
  const std::int32_t heads_;
  const double typical_rms_;
  const double width_;
  const std::vector<double> frequencies_;
  std::vector<double> squares_;       // [token] of its embedding
  std::vector<double> code_squares_;  // [token] of its ID
  std::vector<HeadParts> parts_;      // [layer, head]
};

}  // namespace hisparse::test
