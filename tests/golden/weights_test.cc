// What the loader refuses.
#include "model/weights.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/cpu_device.h"
#include "tests/support/model_rig.h"

namespace hisparse::test {
namespace {

// A real checkpoint with one tensor more.
class WithExtraTensor final : public format::Checkpoint {
 public:
  WithExtraTensor(std::unique_ptr<format::Checkpoint> base, std::string name)
      : base_(std::move(base)), tensors_(base_->tensors()) {
    tensors_.push_back(tensors_.front());
    tensors_.back().name = std::move(name);
  }
  format::CheckpointKind kind() const override { return base_->kind(); }
  const format::Metadata& metadata() const override { return base_->metadata(); }
  const std::vector<format::TensorView>& tensors() const override { return tensors_; }
  const format::TensorView* find(std::string_view name) const override { return base_->find(name); }
  void release(const format::TensorView& tensor) const override { base_->release(tensor); }
  std::string digest() const override { return base_->digest(); }

 private:
  std::unique_ptr<format::Checkpoint> base_;
  std::vector<format::TensorView> tensors_;
};

absl::Status load_with(const std::string& extra) {
  auto opened = format::Checkpoint::open(test_data("golden/data/tiny_llama.gguf"));
  if (!opened.ok()) return opened.status();
  const WithExtraTensor checkpoint(std::move(*opened), extra);
  auto spec = model::read_model_spec(checkpoint);
  if (!spec.ok()) return spec.status();
  auto shard = model::make_shard(*spec, 0, 1);
  base::ThreadPool pool(1);
  auto device = device::make_cpu_device(pool, {});
  return model::load_weights(
             checkpoint, *spec,
             {.shard = &*shard, .compute = device::Compute::kF32, .device = device->get()}, {})
      .status();
}

// Ignoring a bias would change every answer.
TEST(Weights, ATensorThatTheModelDoesNotReadIsRefusedByName) {
  const absl::Status status = load_with("blk.0.attn_q.bias");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("blk.0.attn_q.bias"), absl::string_view::npos);
}

TEST(Weights, ATableThatFollowsFromTheConfigurationIsIgnored) {
  EXPECT_TRUE(load_with("blk.0.rotary_emb.inv_freq").ok());
}

}  // namespace
}  // namespace hisparse::test
