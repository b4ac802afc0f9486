// Numbers that attention kernels, operators, the model and page windows share.
#pragma once

namespace hisparse::device {

// Attention takes keys in segments of this many tokens from position 0 (ARCHITECTURE section 2a).
inline constexpr int kSegmentTokens = 256;

// The result of attention over some keys, not yet divided by the sum: [max, sum, values[head_dim]].
inline constexpr int kPartialHeader = 2;

}  // namespace hisparse::device
