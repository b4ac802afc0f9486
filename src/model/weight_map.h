// Which tensor of a checkpoint, and which part of it, becomes which matrix of a rank.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"
#include "format/checkpoint.h"
#include "model/model_spec.h"

namespace hisparse::model {

// A rank's part of a stored matrix.
struct MatrixSource {
  std::string name;
  std::int64_t stored_rows = 0;
  std::int64_t stored_columns = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
  // > 0: rows are heads of this size, stored with interleaved rotary pairs; they are read in
  // half-split order (GGUF row h * d + 2i + s holds row h * d + s * d / 2 + i; reference/models.md
  // section 3.2).
  std::int32_t interleaved_head_dim = 0;
};

// Tensor names and slices. A value; `spec` and `shard` outlive it.
class WeightMap final {
 public:
  WeightMap(format::CheckpointKind kind, const ModelSpec& spec, const Shard& shard)
      : gguf_(kind == format::CheckpointKind::kGguf), spec_(spec), shard_(shard) {}

  MatrixSource embedding() const;
  MatrixSource head() const;
  MatrixSource q(std::int32_t layer) const;
  MatrixSource k(std::int32_t layer) const;
  MatrixSource v(std::int32_t layer) const;
  MatrixSource output(std::int32_t layer) const;
  MatrixSource gate(std::int32_t layer) const;
  MatrixSource up(std::int32_t layer) const;
  MatrixSource down(std::int32_t layer) const;

  std::string attention_norm(std::int32_t layer) const;
  std::string mlp_norm(std::int32_t layer) const;
  std::string final_norm() const;

 private:
  std::string in_layer(std::int32_t layer, const char* gguf, const char* hugging_face) const;
  // All columns of rows [first, first + count) of a matrix with `stored_rows` rows.
  MatrixSource some_rows(std::string name, std::int64_t stored_rows, std::int64_t first,
                         std::int64_t count) const;
  // The same, of heads whose rotary pairs GGUF interleaves.
  MatrixSource rotary_rows(std::string name, std::int64_t stored_rows, std::int64_t first,
                           std::int64_t count) const;
  // All rows of columns [first, first + count) of a matrix with `stored_columns` columns.
  MatrixSource some_columns(std::string name, std::int64_t stored_columns, std::int64_t first,
                            std::int64_t count) const;

  const bool gguf_;
  const ModelSpec& spec_;
  const Shard& shard_;
};

// What a source takes from a tensor of this type. A slice that cuts through quantised blocks counts
// as f32: it is dequantised.
device::MatrixShape matrix_shape(base::DType stored, const MatrixSource& source);

// Reads the source's part of `tensor`, which has its stored shape.
device::HostMatrix host_matrix(const format::TensorView& tensor, const MatrixSource& source);

}  // namespace hisparse::model
