// Strong index types: a BlockId is never a SlotId.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace hisparse::base {

// An index with a tag. Default-constructed ids are invalid.
template <typename Tag, typename Representation>
class StrongId {
 public:
  using representation = Representation;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Representation value) : value_(value) {}

  constexpr Representation value() const { return value_; }
  constexpr bool valid() const { return value_ != kInvalid; }
  constexpr auto operator<=>(const StrongId&) const = default;

 private:
  static constexpr Representation kInvalid = static_cast<Representation>(-1);
  Representation value_ = kInvalid;
};

// One sequence (one running or waiting request).
using SequenceId = StrongId<struct SequenceTag, std::int64_t>;
// One logical page in the KV Lifecycle Controller.
using BlockId = StrongId<struct BlockTag, std::int32_t>;
// One page-sized place in a tier. Means something only together with its cache group and tier.
using SlotId = StrongId<struct SlotTag, std::int32_t>;
// One engine step; consecutive.
using StepId = StrongId<struct StepTag, std::int64_t>;
// One transfer between tiers.
using TransferId = StrongId<struct TransferTag, std::int64_t>;

// A vocabulary index. Plain, since it travels to and from files and clients.
using TokenId = std::int32_t;

}  // namespace hisparse::base

template <typename Tag, typename Representation>
struct std::hash<hisparse::base::StrongId<Tag, Representation>> {
  std::size_t operator()(hisparse::base::StrongId<Tag, Representation> id) const noexcept {
    return std::hash<Representation>{}(id.value());
  }
};
