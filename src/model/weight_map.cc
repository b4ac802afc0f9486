#include "model/weight_map.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "format/dequantize.h"

namespace hisparse::model {
namespace {

std::int64_t stored_row(const MatrixSource& source, std::int64_t row) {
  const std::int64_t global = source.first_row + row;
  const std::int64_t d = source.interleaved_head_dim;
  if (d == 0) return global;
  const std::int64_t head = global / d;
  const std::int64_t half = global % d / (d / 2);
  const std::int64_t pair = global % (d / 2);
  return head * d + 2 * pair + half;
}

}  // namespace

std::string WeightMap::in_layer(std::int32_t layer, const char* gguf,
                                const char* hugging_face) const {
  return (gguf_ ? "blk." : "model.layers.") + std::to_string(layer) + "." +
         (gguf_ ? gguf : hugging_face) + ".weight";
}

MatrixSource WeightMap::some_rows(std::string name, std::int64_t stored_rows, std::int64_t first,
                                  std::int64_t count) const {
  return {.name = std::move(name),
          .stored_rows = stored_rows,
          .stored_columns = spec_.hidden,
          .first_row = first,
          .rows = count,
          .first_column = 0,
          .columns = spec_.hidden,
          .interleaved_head_dim = 0};
}

MatrixSource WeightMap::rotary_rows(std::string name, std::int64_t stored_rows, std::int64_t first,
                                    std::int64_t count) const {
  MatrixSource source = some_rows(std::move(name), stored_rows, first, count);
  if (gguf_) source.interleaved_head_dim = spec_.head_dim;
  return source;
}

MatrixSource WeightMap::some_columns(std::string name, std::int64_t stored_columns,
                                     std::int64_t first, std::int64_t count) const {
  return {.name = std::move(name),
          .stored_rows = spec_.hidden,
          .stored_columns = stored_columns,
          .first_row = 0,
          .rows = spec_.hidden,
          .first_column = first,
          .columns = count,
          .interleaved_head_dim = 0};
}

MatrixSource WeightMap::embedding() const {
  return some_rows(gguf_ ? "token_embd.weight" : "model.embed_tokens.weight", spec_.vocabulary,
                   static_cast<std::int64_t>(shard_.rank) * shard_.vocabulary, shard_.vocabulary);
}

MatrixSource WeightMap::head() const {
  return some_rows(gguf_ ? "output.weight" : "lm_head.weight", spec_.vocabulary,
                   static_cast<std::int64_t>(shard_.rank) * shard_.vocabulary, shard_.vocabulary);
}

MatrixSource WeightMap::q(std::int32_t layer) const {
  const std::int64_t d = spec_.head_dim;
  return rotary_rows(in_layer(layer, "attn_q", "self_attn.q_proj"), spec_.heads * d,
                     shard_.first_head * d, shard_.heads * d);
}

MatrixSource WeightMap::k(std::int32_t layer) const {
  const std::int64_t d = spec_.head_dim;
  return rotary_rows(in_layer(layer, "attn_k", "self_attn.k_proj"), spec_.kv_heads * d,
                     shard_.first_kv_head * d, shard_.kv_heads * d);
}

MatrixSource WeightMap::v(std::int32_t layer) const {
  const std::int64_t d = spec_.head_dim;
  return some_rows(in_layer(layer, "attn_v", "self_attn.v_proj"), spec_.kv_heads * d,
                   shard_.first_kv_head * d, shard_.kv_heads * d);
}

MatrixSource WeightMap::output(std::int32_t layer) const {
  const std::int64_t d = spec_.head_dim;
  return some_columns(in_layer(layer, "attn_output", "self_attn.o_proj"), spec_.heads * d,
                      shard_.first_head * d, shard_.heads * d);
}

MatrixSource WeightMap::gate(std::int32_t layer) const {
  return some_rows(in_layer(layer, "ffn_gate", "mlp.gate_proj"), spec_.intermediate,
                   static_cast<std::int64_t>(shard_.rank) * shard_.intermediate,
                   shard_.intermediate);
}

MatrixSource WeightMap::up(std::int32_t layer) const {
  return some_rows(in_layer(layer, "ffn_up", "mlp.up_proj"), spec_.intermediate,
                   static_cast<std::int64_t>(shard_.rank) * shard_.intermediate,
                   shard_.intermediate);
}

MatrixSource WeightMap::down(std::int32_t layer) const {
  return some_columns(in_layer(layer, "ffn_down", "mlp.down_proj"), spec_.intermediate,
                      static_cast<std::int64_t>(shard_.rank) * shard_.intermediate,
                      shard_.intermediate);
}

std::string WeightMap::attention_norm(std::int32_t layer) const {
  return in_layer(layer, "attn_norm", "input_layernorm");
}

std::string WeightMap::mlp_norm(std::int32_t layer) const {
  return in_layer(layer, "ffn_norm", "post_attention_layernorm");
}

std::string WeightMap::final_norm() const {
  return gguf_ ? "output_norm.weight" : "model.norm.weight";
}

device::MatrixShape matrix_shape(base::DType stored, const MatrixSource& source) {
  const std::int64_t block = base::block_shape(stored).values;
  const bool whole = source.first_column % block == 0 && source.columns % block == 0;
  return {
      .rows = source.rows, .cols = source.columns, .stored = whole ? stored : base::DType::kF32};
}

device::HostMatrix host_matrix(const format::TensorView& tensor, const MatrixSource& source) {
  const std::int64_t stored_columns = source.stored_columns;
  const std::size_t row_bytes = tensor.bytes.size() / static_cast<std::size_t>(source.stored_rows);
  const auto row_of = [tensor, source, row_bytes](std::int64_t row) {
    return tensor.bytes.subspan(static_cast<std::size_t>(stored_row(source, row)) * row_bytes,
                                row_bytes);
  };
  device::HostMatrix matrix;
  matrix.shape = matrix_shape(tensor.dtype, source);
  matrix.read_row = [=, dtype = tensor.dtype, first = source.first_column](std::int64_t row,
                                                                           std::span<float> out) {
    if (static_cast<std::int64_t>(out.size()) == stored_columns) {
      format::dequantize_row(dtype, row_of(row), out);
      return;
    }
    std::vector<float> whole(static_cast<std::size_t>(stored_columns));
    format::dequantize_row(dtype, row_of(row), whole);
    std::copy_n(whole.begin() + first, out.size(), out.begin());
  };
  matrix.read_blocks = [=, shape = base::block_shape(tensor.dtype), first = source.first_column,
                        columns = source.columns](std::int64_t row) {
    const auto bytes = [shape](std::int64_t values) {
      return static_cast<std::size_t>(values / shape.values * shape.bytes);
    };
    return row_of(row).subspan(bytes(first), bytes(columns));
  };
  return matrix;
}

}  // namespace hisparse::model
