// The operators of operators.h as plain functions that run on the calling thread and the pool.
// CpuDevice puts them into streams. They allocate nothing once their per-thread scratch has grown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/kernels.h"
#include "device/operators.h"

namespace hisparse::device::cpu {

struct OperatorContext {
  base::ThreadPool& pool;
  const KernelTable& kernels;
};

void run_embed(const OperatorContext& context, const EmbedParams& params);
void run_linear(const OperatorContext& context, const LinearParams& params);
void run_rope_angles(const OperatorContext& context, const RopeAnglesParams& params);
void run_rope_and_store(const OperatorContext& context, const RopeAndStoreParams& params);
void run_paged_attention(const OperatorContext& context, const PagedAttentionParams& params);
void run_page_mass(const OperatorContext& context, const PageMassParams& params);
void run_add(const OperatorContext& context, const AddParams& params);
void run_gather_rows(const OperatorContext& context, const GatherRowsParams& params);
void run_copy_columns(const OperatorContext& context, const CopyColumnsParams& params);
void run_sum_ranks(const OperatorContext& context, const SumRanksParams& params);
void run_sample(const OperatorContext& context, const SampleParams& params);

// A piece of work that is worth handing to another thread: a few microseconds.
inline constexpr std::int64_t kValuesPerChunk = 16384;

inline std::int64_t rows_per_chunk(std::int64_t width) {
  return std::max<std::int64_t>(1, kValuesPerChunk / std::max<std::int64_t>(1, width));
}

// Calls body(begin, end) for pieces of [0, count) of `chunk` items; a single piece stays on the
// calling thread.
template <typename Body>
void for_chunks(base::ThreadPool& pool, std::int64_t count, std::int64_t chunk, const Body& body) {
  const auto run = [&](std::int64_t i) {
    body(i * chunk, std::min<std::int64_t>(count, (i + 1) * chunk));
  };
  pool.parallel_for((count + chunk - 1) / chunk, run);
}

// Per-thread memory that only grows. Give it a thread_local vector of your own.
template <typename T>
T* scratch(std::vector<T>& memory, std::int64_t count) {
  if (memory.size() < static_cast<std::size_t>(count)) {
    memory.resize(static_cast<std::size_t>(count));
  }
  return memory.data();
}

}  // namespace hisparse::device::cpu
