// The weights of a RecallModel and their files.
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <span>

#include "base/check.h"
#include "tests/recall/previous_token_weights.h"
#include "tests/recall/recall_model.h"
#include "tests/recall/recall_scales.h"

namespace hisparse::test {
namespace {

constexpr std::size_t kCode = RecallVocabulary::kCode;
constexpr std::size_t kNoise = RecallVocabulary::kNoise;
constexpr std::size_t kHead = kRecallHeadDim;
// The smallest that splits over a few ranks. The MLP writes nothing: its matrices are zero.
constexpr std::size_t kIntermediate = 64;

struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<float> values;

  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), values(r * c) {}
  void set(std::size_t row, std::size_t column, double value) {
    values[row * columns + column] = static_cast<float>(value);
  }
};

struct Tensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<float> values;
};

std::string header_of(const std::vector<Tensor>& tensors) {
  std::string text = "{";
  std::size_t offset = 0;
  for (const Tensor& tensor : tensors) {
    const std::size_t end = offset + tensor.values.size() * sizeof(float);
    std::string shape;
    for (const std::size_t size : tensor.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(size);
    }
    text += (offset == 0 ? "\"" : ",\"") + tensor.name + R"(":{"dtype":"F32","shape":[)" + shape +
            R"(],"data_offsets":[)" + std::to_string(offset) + "," + std::to_string(end) + "]}";
    offset = end;
  }
  return text + "}";
}

absl::Status write_safetensors(const std::string& path, const std::vector<Tensor>& tensors) {
  const std::string header = header_of(tensors);
  const std::uint64_t length = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << header;
  for (const Tensor& tensor : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.values.data()),
               static_cast<std::streamsize>(tensor.values.size() * sizeof(float)));
  }
  file.close();
  return file.good() ? absl::OkStatus() : absl::UnavailableError("cannot write " + path);
}

absl::Status write_config(const std::string& path, const RecallModel& model) {
  const std::size_t heads = static_cast<std::size_t>(model.vocabulary().shape().kv_heads);
  std::ofstream file(path);
  file << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama")"
       << R"(, "hidden_size": )" << model.lanes().width << R"(, "intermediate_size": )"
       << kIntermediate << R"(, "num_hidden_layers": )" << kRecallLayers
       << R"(, "num_attention_heads": )" << heads << R"(, "num_key_value_heads": )" << heads
       << R"(, "head_dim": )" << kRecallHeadDim << R"(, "vocab_size": )"
       << model.vocabulary().size() << R"(, "max_position_embeddings": 2097152)"
       << R"(, "rms_norm_eps": 1e-06, "rope_theta": )" << kPreviousTokenTheta
       << R"(, "hidden_act": "silu", "tie_word_embeddings": false})"
       << "\n";
  file.close();
  return file.good() ? absl::OkStatus() : absl::UnavailableError("cannot write " + path);
}

}  // namespace

// Matrices are [out, in]; an input is a residual divided by its root mean square, so a weight of
// typical_rms() takes a lane as it is.
class RecallTensors final {
 public:
  explicit RecallTensors(const RecallModel& model)
      : model_(model),
        vocabulary_(model.vocabulary()),
        lanes_(model.lanes()),
        heads_(static_cast<std::size_t>(vocabulary_.shape().kv_heads)),
        lane_(model.typical_rms()),
        constant_(lane_ / kConstant) {}

  std::vector<Tensor> make() {
    add("model.embed_tokens.weight", embedding());
    add("lm_head.weight", unembedding());
    add_norm("model.norm.weight");
    for (std::int32_t layer = 0; layer < kRecallLayers; ++layer) add_layer(layer);
    return std::move(tensors_);
  }

 private:
  void add(const std::string& name, Matrix matrix) {
    tensors_.push_back(
        {.name = name, .shape = {matrix.rows, matrix.columns}, .values = std::move(matrix.values)});
  }
  void add_norm(const std::string& name) {
    tensors_.push_back(
        {.name = name, .shape = {lanes_.width}, .values = std::vector<float>(lanes_.width, 1.0f)});
  }

  void add_layer(std::int32_t layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    add_norm(prefix + "input_layernorm.weight");
    add_norm(prefix + "post_attention_layernorm.weight");
    Matrix q(heads_ * kHead, lanes_.width), k(q.rows, q.columns), v(q.rows, q.columns);
    for (std::size_t head = 0; head < heads_; ++head) {
      layer == 0 ? match_positions(head, q, k) : match_codes(layer - 1, head, q, k);
      take_values(layer, head, v);
    }
    add(prefix + "self_attn.q_proj.weight", std::move(q));
    add(prefix + "self_attn.k_proj.weight", std::move(k));
    add(prefix + "self_attn.v_proj.weight", std::move(v));
    add(prefix + "self_attn.o_proj.weight", put_values(layer));
    add(prefix + "mlp.gate_proj.weight", Matrix(kIntermediate, lanes_.width));
    add(prefix + "mlp.up_proj.weight", Matrix(kIntermediate, lanes_.width));
    add(prefix + "mlp.down_proj.weight", Matrix(lanes_.width, kIntermediate));
  }

  Matrix embedding() const {
    Matrix matrix(static_cast<std::size_t>(vocabulary_.size()), lanes_.width);
    for (std::size_t token = 0; token < matrix.rows; ++token) {
      const std::vector<double> row = model_.embedding(static_cast<base::TokenId>(token));
      for (std::size_t i = 0; i < row.size(); ++i) matrix.set(token, i, row[i]);
    }
    return matrix;
  }

  std::size_t last_hop(std::size_t head) const {
    return lanes_.hops[(kRecallHops - 1) * heads_ + head];
  }

  // A key's logit is its code times what the last hop has found.
  Matrix unembedding() const {
    Matrix matrix(static_cast<std::size_t>(vocabulary_.size()), lanes_.width);
    const auto read = [&](base::TokenId token, std::size_t head, std::span<const float> code) {
      for (std::size_t i = 0; i < kCode; ++i) {
        matrix.set(static_cast<std::size_t>(token), last_hop(head) + i, code[i]);
      }
    };
    for (std::size_t head = 0; head < heads_; ++head) {
      read(RecallVocabulary::none(), head, vocabulary_.none_code(static_cast<std::int32_t>(head)));
    }
    for (base::TokenId token = 0; token < vocabulary_.size(); ++token) {
      if (!vocabulary_.is_key(token)) continue;
      read(token, static_cast<std::size_t>(vocabulary_.head_of(token)), vocabulary_.id(token));
    }
    return matrix;
  }

  // Each pair of a query is its key's, turned back by one position.
  void match_positions(std::size_t head, Matrix& q, Matrix& k) const {
    const std::vector<double> amplitudes = RecallModel::previous_token_amplitudes();
    const std::vector<double> frequencies = RecallModel::frequencies();
    for (std::size_t pair = 0; pair < amplitudes.size(); ++pair) {
      const std::size_t row = head * kHead + pair;
      const double size = amplitudes[pair] * constant_;
      k.set(row, lanes_.constant, size);
      q.set(row, lanes_.constant, size * std::cos(frequencies[pair]));
      q.set(row + kRecallPairs, lanes_.constant, -size * std::sin(frequencies[pair]));
    }
  }

  void match_codes(int hop, std::size_t head, Matrix& q, Matrix& k) const {
    const auto row_of = [head](std::size_t dim) { return head * kHead + dim; };
    const std::size_t source =
        hop == 0 ? lanes_.id[head] : lanes_.hops[static_cast<std::size_t>(hop - 1) * heads_ + head];
    const std::span<const double> rotation =
        vocabulary_.rotation(hop, static_cast<std::int32_t>(head));
    for (std::size_t i = 0; i < kCode; ++i) {
      for (std::size_t j = 0; j < kCode; ++j) {
        const double weight = rotation[i * kCode + j] * match_gain() * lane_;
        q.set(row_of(HeadDims::code(i)), source + j, weight);
        k.set(row_of(HeadDims::code(i)), lanes_.prv[head] + j, weight);
      }
    }
    const std::vector<double>& dither =
        model_.dither_[static_cast<std::size_t>(hop) * heads_ + head];
    for (std::size_t i = 0; i < HeadDims::kIdle; ++i) {
      for (std::size_t j = 0; j < kNoise; ++j) {
        k.set(row_of(HeadDims::idle(i)), lanes_.noise + j,
              dither[i * kNoise + j] * match_gain() * lane_);
      }
    }
    const std::vector<double> constants = RecallModel::constant_key();
    for (std::size_t dim = 0; dim < kHead; ++dim) {
      if (constants[dim] != 0.0) k.set(row_of(dim), lanes_.constant, constants[dim] * constant_);
    }
    k.set(row_of(HeadDims::kSink), lanes_.sink, RecallModel::sink_key() * lane_);
    q.set(row_of(HeadDims::kSink), lanes_.constant, kSinkShare * match_gain() * constant_);
    q.set(row_of(HeadDims::kOtherSink), lanes_.constant,
          kOtherSinkQuery * match_gain() * constant_);
  }

  void take_values(std::int32_t layer, std::size_t head, Matrix& v) const {
    const std::size_t lane = (layer == 0 ? lanes_.id : lanes_.out)[head];
    for (std::size_t i = 0; i < kCode; ++i) v.set(head * kHead + i, lane + i, lane_);
    for (std::size_t i = 0; i < kNoise; ++i) {
      v.set(head * kHead + kCode + i, lanes_.noise + i, lane_);
    }
  }

  Matrix put_values(std::int32_t layer) const {
    Matrix matrix(lanes_.width, heads_ * kHead);
    for (std::size_t head = 0; head < heads_; ++head) {
      const std::size_t lane =
          layer == 0 ? lanes_.prv[head]
                     : lanes_.hops[static_cast<std::size_t>(layer - 1) * heads_ + head];
      for (std::size_t i = 0; i < kCode; ++i) matrix.set(lane + i, head * kHead + i, 1.0);
    }
    return matrix;
  }

  const RecallModel& model_;
  const RecallVocabulary& vocabulary_;
  const ResidualLanes& lanes_;
  const std::size_t heads_;
  const double lane_;      // weight that takes a lane as it is
  const double constant_;  // and the constant as one
  std::vector<Tensor> tensors_;
};

absl::Status RecallModel::write(const std::string& folder) const {
  if (absl::Status status = write_config(folder + "/config.json", *this); !status.ok()) {
    return status;
  }
  return write_safetensors(folder + "/model.safetensors", RecallTensors(*this).make());
}

}  // namespace hisparse::test
