// How far the cores are from each other: on a virtual machine that may change from one minute to
// the next, and with it the read bandwidth, since far cores do not share their way to memory.
#pragma once

#include "base/thread_pool.h"

namespace hisparse::bench {

// Nanoseconds until one thread sees what another one has written to a cache line: the least of some
// rounds, a millisecond or less. 0 if the pool has one thread. The pool is idle.
double line_nanoseconds(base::ThreadPool& pool);

}  // namespace hisparse::bench
