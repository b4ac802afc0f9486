// Matrix product, norm and the element-wise operators.
#include <cstring>
#include <vector>

#include "device/cpu/cpu_memory.h"
#include "device/cpu/cpu_operators.h"
#include "device/cpu/packed_weight.h"

namespace hisparse::device::cpu {
namespace {

// Rows of one task of a product: with a block of k their inputs stay in the L2 cache. A multiple of
// the kernel's tile.
constexpr std::int64_t kRowsPerTask = 120;
// With few rows the weights are streamed once: bytes that are worth a task.
constexpr std::int64_t kWeightBytesPerTask = std::int64_t{128} << 10;
constexpr std::int64_t kStreamingRows = 6;

const PackedWeight& packed(const Weight* weight) {
  return static_cast<const PackedWeight&>(*weight);
}

std::size_t float_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

// The input as the weight's type sees it: itself, or rounded to bf16 in this thread's scratch.
const float* input_of(const OperatorContext& context, const LinearParams& params,
                      const PackedWeight& weight) {
  const float* in = pointer_to(params.in);
  if (weight.element() == Element::kF32) return in;
  thread_local std::vector<float> memory;
  const std::int64_t count = params.rows * weight.cols();
  float* rounded = scratch(memory, count);
  for_chunks(context.pool, count, kValuesPerChunk, [&](std::int64_t begin, std::int64_t end) {
    context.kernels.round_to_bf16(in + begin, rounded + begin, end - begin);
  });
  return rounded;
}

}  // namespace

void run_linear(const OperatorContext& context, const LinearParams& params) {
  const PackedWeight& weight = packed(params.weight);
  const float* in = input_of(context, params, weight);
  float* out = pointer_to(params.out);
  const std::int64_t group =
      params.rows > kStreamingRows
          ? 1
          : std::max<std::int64_t>(1, kWeightBytesPerTask / weight.panel_bytes());
  const std::int64_t groups = (weight.panels() + group - 1) / group;
  const std::int64_t row_tasks = (params.rows + kRowsPerTask - 1) / kRowsPerTask;
  const auto multiply = [&](std::int64_t panel, std::int64_t row) {
    const std::int64_t column = panel * kPanelColumns;
    context.kernels.multiply_panel(
        {.panel = weight.panel(panel),
         .in = in + row * weight.cols(),
         .out = out + row * weight.rows() + column,
         .rows = std::min(kRowsPerTask, params.rows - row),
         .k = weight.cols(),
         .out_stride = weight.rows(),
         .columns = static_cast<int>(std::min<std::int64_t>(kPanelColumns, weight.rows() - column)),
         .element = weight.element()});
  };
  for_chunks(context.pool, groups * row_tasks, 1, [&](std::int64_t task, std::int64_t) {
    const std::int64_t first = task % groups * group;
    const std::int64_t last = std::min(weight.panels(), first + group);
    for (std::int64_t panel = first; panel < last; ++panel) {
      multiply(panel, task / groups * kRowsPerTask);
    }
  });
}

void run_embed(const OperatorContext& context, const EmbedParams& params) {
  const PackedWeight& table = packed(params.table);
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

void run_rms_norm(const OperatorContext& context, const RmsNormParams& params) {
  const float* in = pointer_to(params.in);
  const float* weight = pointer_to(params.weight);
  float* out = pointer_to(params.out);
  for_chunks(context.pool, params.rows, rows_per_chunk(params.width),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t r = begin; r < end; ++r) {
                 context.kernels.rms_norm(in + r * params.width, weight, out + r * params.width,
                                          params.width, params.epsilon);
               }
             });
}

void run_silu_mul(const OperatorContext& context, const SiluMulParams& params) {
  const float* gate = pointer_to(params.gate);
  const float* up = pointer_to(params.up);
  float* out = pointer_to(params.out);
  for_chunks(context.pool, params.count, kValuesPerChunk,
             [&](std::int64_t begin, std::int64_t end) {
               context.kernels.silu_mul(gate + begin, up + begin, out + begin, end - begin);
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
