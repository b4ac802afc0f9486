// The constants of the recall fixture's weights; recall_model.h says what they are for.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

namespace hisparse::test {

// Of the residual: what it makes of the norm's differences between tokens (a few parts in 2 *
// 128^2) must stay below the smallest gap of the ladder, one part in 1000.
inline constexpr double kConstant = 128.0;
// Scores in nats: of the token before, against every other distance; and of an exact match. The
// softmax of a hop must take one key even from a gap of 1/1000 that the rounding of its row has
// nearly used up, or the next hop would get a mixture.
inline constexpr double kPreviousTokenNats = 160.0;
inline constexpr double kMatchNats = 32768.0;
// The sink's score is this share of a match: above all fillers, below the last rung. What it gives
// is shorter than a code, so that an answer found by another head wins, whose code may lie near
// the one of NONE.
inline constexpr double kSinkShare = 0.75;
inline constexpr double kNoneLength = 0.3;
// Constants of hop keys: in dimensions that no query reads, in sizes of a code's value (real keys
// have such channels), and in the two dimensions of the sink, where they add the same to every
// score. kOtherSinkQuery is what queries hold in the second of these.
inline constexpr std::array<std::pair<std::size_t, double>, 4> kOutliers = {
    {{3, 6.0}, {11, -5.0}, {40, 8.0}, {60, -10.0}}};
inline constexpr double kSinkOutlier = 0.6;
inline constexpr double kOtherSinkOutlier = -0.5;
inline constexpr double kOtherSinkQuery = 0.5;

// Length of a query and of a key, for kMatchNats behind the attention's 1 / sqrt(head size).
inline double match_gain() { return std::sqrt(kMatchNats * std::sqrt(128.0)); }

}  // namespace hisparse::test
