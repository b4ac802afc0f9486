// The one number that attention kernels, operators and page windows share.
#pragma once

namespace hisparse::device {

// Attention takes keys in segments of this many tokens from position 0 (ARCHITECTURE section 2a).
inline constexpr int kSegmentTokens = 256;

}  // namespace hisparse::device
