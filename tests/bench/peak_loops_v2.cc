// The peak loops for x86-64-v2; the flag is set in CMakeLists.txt.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "tests/bench/peak_loops.h"

namespace hisparse::bench {
namespace {

#include "tests/bench/peak_loops.inc.h"

constexpr PeakLoops kLoops = {
    .level = "x86-64-v2",
    .f32 = {run_f32, kF32Operations, "mulps + addps"},
    .int8 = {run_int8, kInt8Operations, kInt8Instructions},
    .int4 = {run_int4, kInt4Operations, kInt4Instructions},
    .bf16 = {},
    .read_one_stream = run_read<1>,
    .read_four_streams = run_read<4>,
};

}  // namespace

const PeakLoops& peak_loops_v2() { return kLoops; }

}  // namespace hisparse::bench
