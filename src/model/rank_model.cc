#include "model/rank_model.h"

#include <cmath>
#include <utility>

#include "base/status.h"

namespace hisparse::model {
namespace {

using base::MemoryOwner;
using device::DevicePtr;
using device::LinearInput;

// Bytes of each activation buffer; the one place that both the plan and the allocation read.
struct ActivationBytes {
  std::int64_t inverse_frequencies, cos_sin, hidden, partial, q, kv, attention_state, mlp, gathered,
      rank_logits, logits;

  ActivationBytes(const ModelSpec& spec, const ModelOptions& options, const Shard& shard) {
    constexpr std::int64_t kFloat = sizeof(float);
    const std::int64_t rows = options.max_rows;
    const std::int64_t head_dim = spec.head_dim;
    inverse_frequencies = head_dim / 2 * static_cast<std::int64_t>(sizeof(double));
    cos_sin = rows * head_dim * kFloat;
    hidden = rows * spec.hidden * kFloat;
    partial = shard.ranks > 1 ? hidden : 0;
    q = rows * shard.heads * head_dim * kFloat;
    kv = rows * shard.kv_heads * head_dim * kFloat;
    attention_state = options.pages == PageAccess::kWindowed
                          ? rows * shard.heads * (device::kPartialHeader + head_dim) * kFloat
                          : 0;
    mlp = rows * shard.intermediate * kFloat;
    gathered = options.max_logit_rows * spec.hidden * kFloat;
    rank_logits = shard.ranks > 1 ? options.max_logit_rows * shard.vocabulary * kFloat : 0;
    logits = options.max_logit_rows * spec.vocabulary * kFloat;
  }

  std::int64_t total() const {
    return inverse_frequencies + cos_sin + hidden + partial + 2 * q + 2 * kv + attention_state +
           2 * mlp + gathered + rank_logits + logits;
  }
};

}  // namespace

std::int64_t kv_row_bytes(const ModelSpec& spec, const Shard& shard, base::DType kv_dtype) {
  return static_cast<std::int64_t>(shard.kv_heads) * spec.head_dim *
         base::block_shape(kv_dtype).bytes;
}

base::Ledger plan_memory(const format::Checkpoint& checkpoint, const ModelSpec& spec,
                         const ModelOptions& options, const Shard& shard,
                         const WeightBytes& weight_bytes) {
  base::Ledger ledger;
  ledger[MemoryOwner::kWeights] =
      plan_weight_bytes(checkpoint, spec, shard, options.compute, weight_bytes);
  ledger[MemoryOwner::kActivations] = ActivationBytes(spec, options, shard).total();
  return ledger;
}

absl::StatusOr<std::unique_ptr<RankModel>> RankModel::load(const format::Checkpoint& checkpoint,
                                                           const ModelSpec& spec,
                                                           const ModelOptions& options,
                                                           const Context& context,
                                                           const LoadProgress& progress) {
  HS_ASSIGN_OR_RETURN(
      ModelWeights weights,
      load_weights(checkpoint, spec,
                   {.shard = &context.shard, .compute = options.compute, .device = context.device},
                   progress));
  std::unique_ptr<RankModel> model(new RankModel(spec, options, context, std::move(weights)));
  HS_RETURN_IF_ERROR(model->allocate());
  return model;
}

RankModel::RankModel(const ModelSpec& spec, const ModelOptions& options, const Context& context,
                     ModelWeights weights)
    : spec_(spec),
      options_(options),
      device_(*context.device),
      communicator_(*context.communicator),
      shard_(context.shard),
      weights_(std::move(weights)) {}

absl::Status RankModel::allocate() {
  const ActivationBytes bytes(spec_, options_, shard_);
  const std::pair<device::Buffer*, std::int64_t> buffers[] = {
      {&inverse_frequencies_, bytes.inverse_frequencies},
      {&cos_sin_, bytes.cos_sin},
      {&hidden_, bytes.hidden},
      {&partial_, bytes.partial},
      {&q_, bytes.q},
      {&k_, bytes.kv},
      {&v_, bytes.kv},
      {&attended_, bytes.q},
      {&attention_state_, bytes.attention_state},
      {&gate_, bytes.mlp},
      {&up_, bytes.mlp},
      {&gathered_, bytes.gathered},
      {&rank_logits_, bytes.rank_logits},
      {&logits_, bytes.logits},
  };
  for (const auto& [buffer, size] : buffers) {
    if (size == 0) continue;
    HS_ASSIGN_OR_RETURN(
        *buffer, device_.allocate(static_cast<std::size_t>(size), MemoryOwner::kActivations));
  }
  const std::vector<double> frequencies = inverse_frequencies(spec_, weights_.rope_divisors);
  const auto stream = device_.create_stream();
  device_.copy_to_device(std::as_bytes(std::span(frequencies)),
                         inverse_frequencies_.as<std::byte>(), *stream);
  return device_.synchronize(device_.record(*stream));
}

void RankModel::add_to_hidden(const device::Weight& weight, device::LinearParams params,
                              device::Stream& stream) {
  const bool whole = shard_.ranks == 1;
  params.products[0] = {.weight = &weight, .out = (whole ? hidden_ : partial_).as<float>()};
  params.result = whole ? device::LinearResult::kAdd : device::LinearResult::kStore;
  device_.linear(params, stream);
  if (whole) return;
  const std::int64_t count = params.rows * spec_.hidden;
  communicator_.all_reduce_sum(partial_.as<float>(), count, stream);
  device_.add(
      {.accumulator = hidden_.as<float>(), .addend = partial_.as<const float>(), .count = count},
      stream);
}

void RankModel::attend(std::int32_t layer, const ForwardInputs& inputs,
                       device::PagedAttentionParams params, device::Stream& stream) {
  if (inputs.windows == nullptr) return device_.paged_attention(params, stream);
  for (std::int32_t window = 0; window < inputs.windows->count(); ++window) {
    params.window = inputs.windows->enter(layer, window, stream);
    params.window.state = attention_state_.as<float>();
    device_.paged_attention(params, stream);
    inputs.windows->leave(stream);
  }
}

void RankModel::attention(std::int32_t index, const ForwardInputs& inputs, device::KvPages pages,
                          device::Stream& stream) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const std::int64_t rows = inputs.placement.rows;
  device_.linear({.products = {{{.weight = layer.q.get(), .out = q_.as<float>()},
                                {.weight = layer.k.get(), .out = k_.as<float>()},
                                {.weight = layer.v.get(), .out = v_.as<float>()}}},
                  .in = hidden_.as<const float>(),
                  .operand = layer.attention_norm.as<const float>(),
                  .rows = rows,
                  .epsilon = spec_.rms_epsilon,
                  .input = LinearInput::kRmsNorm},
                 stream);
  device_.rope_and_store({.q = q_.as<float>(),
                          .k = k_.as<const float>(),
                          .v = v_.as<const float>(),
                          .cos_sin = cos_sin_.as<const float>(),
                          .placement = inputs.placement,
                          .pages = pages,
                          .rotary_pairs = spec_.head_dim / 2,
                          .heads = shard_.heads},
                         stream);
  attend(index, inputs,
         {.q = q_.as<const float>(),
          .out = attended_.as<float>(),
          .placement = inputs.placement,
          .pages = pages,
          .heads = shard_.heads,
          .scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim)),
          .window = {},
          .wait_ticket = 0},
         stream);
  answer_probes(index, inputs, pages, stream);
  add_to_hidden(*layer.output, {.in = attended_.as<const float>(), .rows = rows}, stream);
}

void RankModel::answer_probes(std::int32_t layer, const ForwardInputs& inputs,
                              const device::KvPages& pages, device::Stream& stream) {
  for (const PageProbe& probe : inputs.probes) {
    if (probe.layer != layer) continue;
    device_.page_mass({.q = q_.as<const float>() + probe.row * shard_.heads * spec_.head_dim,
                       .page_indices = probe.pages,
                       .masses = probe.masses,
                       .count = probe.count,
                       .position = probe.position,
                       .sequence_slot = probe.sequence_slot,
                       .heads = shard_.heads,
                       .scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim)),
                       .pages = pages},
                      stream);
  }
}

void RankModel::mlp(const LayerWeights& layer, std::int64_t rows, device::Stream& stream) {
  device_.linear({.products = {{{.weight = layer.gate.get(), .out = gate_.as<float>()},
                                {.weight = layer.up.get(), .out = up_.as<float>()}}},
                  .in = hidden_.as<const float>(),
                  .operand = layer.mlp_norm.as<const float>(),
                  .rows = rows,
                  .epsilon = spec_.rms_epsilon,
                  .input = LinearInput::kRmsNorm},
                 stream);
  add_to_hidden(*layer.down,
                {.in = gate_.as<const float>(),
                 .operand = up_.as<const float>(),
                 .rows = rows,
                 .input = LinearInput::kSiluMul},
                stream);
}

void RankModel::output(const ForwardInputs& inputs, device::Stream& stream) {
  if (inputs.logit_count == 0) return;
  device_.gather_rows({.in = hidden_.as<const float>(),
                       .indices = inputs.logit_rows,
                       .out = gathered_.as<float>(),
                       .rows = inputs.logit_count,
                       .width = spec_.hidden},
                      stream);
  const bool whole = shard_.ranks == 1;
  device_.linear(
      {.products = {{{.weight = weights_.head ? weights_.head.get() : weights_.embedding.get(),
                      .out = (whole ? logits_ : rank_logits_).as<float>()}}},
       .in = gathered_.as<const float>(),
       .operand = weights_.final_norm.as<const float>(),
       .rows = inputs.logit_count,
       .epsilon = spec_.rms_epsilon,
       .input = LinearInput::kRmsNorm},
      stream);
  if (whole) return;
  communicator_.all_gather_columns(rank_logits_.as<const float>(), logits_.as<float>(),
                                   inputs.logit_count, shard_.vocabulary, stream);
}

void RankModel::forward(const ForwardInputs& inputs, const PageGeometry& geometry,
                        device::Stream& stream) {
  const std::int64_t rows = inputs.placement.rows;
  device_.rope_angles({.positions = inputs.placement.positions,
                       .inverse_frequencies = inverse_frequencies_.as<const double>(),
                       .cos_sin = cos_sin_.as<float>(),
                       .rows = rows,
                       .rotary_pairs = spec_.head_dim / 2},
                      stream);
  device_.embed({.table = weights_.embedding.get(),
                 .tokens = inputs.tokens,
                 .out = hidden_.as<float>(),
                 .rows = rows,
                 .first_token = shard_.rank * shard_.vocabulary},
                stream);
  communicator_.all_reduce_sum(hidden_.as<float>(), rows * spec_.hidden, stream);
  for (std::int32_t i = 0; i < spec_.layers; ++i) {
    const LayerOffsets& offsets = geometry.layers[static_cast<std::size_t>(i)];
    const device::KvPages pages = {.addresses = inputs.page_addresses,
                                   .pages_per_sequence = inputs.pages_per_sequence,
                                   .k_offset = offsets.k,
                                   .v_offset = offsets.v,
                                   .page_tokens = geometry.page_tokens,
                                   .kv_heads = shard_.kv_heads,
                                   .head_dim = spec_.head_dim,
                                   .dtype = options_.kv_dtype};
    attention(i, inputs, pages, stream);
    mlp(weights_.layers[static_cast<std::size_t>(i)], rows, stream);
  }
  output(inputs, stream);
}

DevicePtr<const float> RankModel::logits() const { return logits_.as<const float>(); }

}  // namespace hisparse::model
