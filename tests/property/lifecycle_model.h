// A map-based model of the LifecycleController, written without its code: it knows tokens, slots
// and deltas, no blocks, keys or reference counts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kv/lifecycle_controller.h"

namespace hisparse::tests {

using Tokens = std::vector<base::TokenId>;
using Slot = std::int32_t;
using Sequence = std::int64_t;

// What a plan was asked for, in the model's words.
struct ModelPlan {
  struct Admission {
    Sequence sequence;
    int root;
    std::vector<Slot> matched;
    std::int64_t prompt_tokens;
  };
  std::vector<Sequence> releases;
  std::vector<Admission> admissions;
  std::vector<std::pair<Sequence, std::int64_t>> growths;  // in order of first claim

  std::int64_t claimed() const;
  std::int64_t& growth_of(Sequence sequence);
};

// Predicts the controller and answers the first disagreement in words.
class LifecycleModel final {
 public:
  explicit LifecycleModel(const kv::ControllerConfig& config);

  // The slots of the longest published prefix, leaving one token to compute.
  std::vector<Slot> match(int root, const Tokens& prompt) const;

  // Slots that no sequence holds once `plan` is done, less what it claims.
  std::int64_t available(const ModelPlan& plan) const;
  std::int64_t pages_held(Sequence sequence, const ModelPlan& plan) const;
  std::int64_t pages_for(std::int64_t tokens) const;

  std::optional<std::string> committed(const ModelPlan& plan, const kv::KvCommit& commit);
  std::optional<std::string> wrote(Sequence sequence, const Tokens& tokens,
                                   const kv::KvCommit& commit);
  std::optional<std::string> released(Sequence sequence, const kv::KvCommit& commit);
  void stray() { ++strays_; }

  // Compares everything that the controller shows with the model, and reads every sequence's tokens
  // back through its block table.
  std::optional<std::string> compare(const kv::LifecycleController& controller) const;

  bool has(Sequence sequence) const { return sequences_.contains(sequence); }
  std::vector<Sequence> sequences() const;
  std::int64_t written(Sequence sequence) const;
  std::int64_t room(Sequence sequence) const;  // tokens that fit behind what is written

 private:
  // A page's content with all before it, interned; roots have negative numbers.
  using Node = std::int64_t;
  struct Live {
    Node root = 0;
    Tokens tokens;
    std::vector<Slot> table;
  };
  struct Published {
    Node parent = 0;
    Node node = 0;
    std::uint64_t last_use = 0;
    std::int32_t page = 0;
  };

  static Node root_node(int root) { return -1 - root; }
  std::optional<Node> known_node(Node parent, const Tokens& page) const;
  Node node_of(Node parent, const Tokens& page);
  std::set<Slot> held_by(const ModelPlan& plan) const;
  bool held(Slot slot) const;
  bool in_use(Slot slot) const { return contents_.contains(slot); }
  std::optional<std::string> leave(Sequence sequence, std::vector<Slot>& freed);
  std::optional<std::string> evict(const std::vector<Slot>& evicted, const ModelPlan& plan);
  std::optional<std::string> expect_deltas(const std::vector<kv::TableDelta>& deltas,
                                           const ModelPlan& plan);
  void finish_page(Sequence sequence, std::size_t page, std::vector<Slot>& freed,
                   std::vector<kv::TableDelta>& deltas);

  kv::ControllerConfig config_;
  std::map<Sequence, Live> sequences_;
  std::map<Slot, Tokens> contents_;  // of every slot that is not free
  std::map<std::pair<Node, Tokens>, Node> nodes_;
  std::map<Node, Slot> published_;
  std::map<Slot, Published> published_slots_;
  std::uint64_t now_ = 0;
  std::int64_t lookups_ = 0;
  std::int64_t hits_ = 0;
  std::int64_t dropped_ = 0;
  std::int64_t deduplicated_ = 0;
  std::int64_t strays_ = 0;
};

}  // namespace hisparse::tests
