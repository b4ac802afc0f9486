// What kind of decoder a checkpoint is: the knobs of reference/models.md section 2, read from
// either kind of metadata. One generic decoder is driven by this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "format/checkpoint.h"

namespace hisparse::model {

// Llama 3 frequency scaling (reference/models.md section 2).
struct Llama3Scaling {
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 1.0;
  double original_max_position = 0.0;
};

struct RopeSpec {
  double theta = 10000.0;
  std::optional<Llama3Scaling> llama3;
};

struct ModelSpec {
  std::string architecture;  // as the checkpoint names it
  std::int32_t layers = 0;
  std::int32_t hidden = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t intermediate = 0;
  std::int32_t vocabulary = 0;
  std::int64_t max_position = 0;
  float rms_epsilon = 0.0f;
  RopeSpec rope;
  std::vector<base::TokenId> end_tokens;  // may be empty: the tokenizer may know more
  bool tied = false;                      // the output matrix is the embedding

  std::int64_t parameters() const;  // of matrices and norms; embeddings counted once if tied
};

// Refuses by name what is not implemented (architectures, biases, scalings, activations), and sizes
// that do not fit together. Errors name the key.
absl::StatusOr<ModelSpec> read_model_spec(const format::Checkpoint& checkpoint);

// Inverse frequencies of the rotary pairs [head_dim / 2], in double. `divisors` (GGUF rope_freqs)
// replaces the llama3 scaling when not empty.
std::vector<double> inverse_frequencies(const ModelSpec& spec, const std::vector<float>& divisors);

// How the model is split over `ranks` (reference/models.md section 6.1).
struct Shard {
  std::int32_t rank = 0;
  std::int32_t ranks = 1;
  std::int32_t heads = 0;  // of this rank
  std::int32_t first_head = 0;
  std::int32_t kv_heads =
      0;  // of this rank; a head is repeated on ranks / kv_heads ranks if there are fewer
  std::int32_t first_kv_head = 0;
  std::int32_t intermediate = 0;  // of this rank
  std::int32_t vocabulary = 0;    // of this rank
};

// InvalidArgument with the sizes that do divide the model when `ranks` does not.
absl::StatusOr<Shard> make_shard(const ModelSpec& spec, std::int32_t rank, std::int32_t ranks);

}  // namespace hisparse::model
