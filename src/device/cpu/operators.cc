// Embedding and the operators that copy and add.
#include <cstring>

#include "device/cpu/cpu_memory.h"
#include "device/cpu/cpu_operators.h"
#include "device/cpu/packed_weight.h"

namespace hisparse::device::cpu {
namespace {

std::size_t float_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

}  // namespace

void run_embed(const OperatorContext& context, const EmbedParams& params) {
  const auto& table = static_cast<const PackedWeight&>(*params.table);
  const std::int64_t width = table.cols();
  const base::TokenId* tokens = pointer_to(params.tokens);
  float* out = pointer_to(params.out);
  for_chunks(context.pool, params.rows, rows_per_chunk(width),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t r = begin; r < end; ++r) {
                 const std::int64_t row = std::int64_t{tokens[r]} - params.first_token;
                 if (row >= 0 && row < table.rows()) {
                   table.read_row(row, out + r * width);
                 } else {
                   std::memset(out + r * width, 0, float_bytes(width));
                 }
               }
             });
}

void run_add(const OperatorContext& context, const AddParams& params) {
  float* accumulator = pointer_to(params.accumulator);
  const float* addend = pointer_to(params.addend);
  for_chunks(context.pool, params.count, kValuesPerChunk,
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t i = begin; i < end; ++i) accumulator[i] += addend[i];
             });
}

void run_gather_rows(const OperatorContext& context, const GatherRowsParams& params) {
  const float* in = pointer_to(params.in);
  const std::int32_t* indices = pointer_to(params.indices);
  float* out = pointer_to(params.out);
  for_chunks(context.pool, params.rows, rows_per_chunk(params.width),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t r = begin; r < end; ++r) {
                 std::memcpy(out + r * params.width, in + indices[r] * params.width,
                             float_bytes(params.width));
               }
             });
}

void run_copy_columns(const OperatorContext& context, const CopyColumnsParams& params) {
  const float* in = pointer_to(params.in);
  float* out = pointer_to(params.out) + params.first_column;
  for_chunks(context.pool, params.rows, rows_per_chunk(params.width),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t r = begin; r < end; ++r) {
                 std::memcpy(out + r * params.out_width, in + r * params.width,
                             float_bytes(params.width));
               }
             });
}

void run_sum_ranks(const OperatorContext& context, const SumRanksParams& params) {
  const std::int64_t count = params.end - params.begin;
  for_chunks(context.pool, count, kValuesPerChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = params.begin + begin; i < params.begin + end; ++i) {
      float sum = pointer_to(params.buffers[0])[i];
      for (int r = 1; r < params.ranks; ++r) sum += pointer_to(params.buffers[r])[i];
      for (int r = 0; r < params.ranks; ++r) pointer_to(params.buffers[r])[i] = sum;
    }
  });
}

}  // namespace hisparse::device::cpu
