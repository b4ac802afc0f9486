// A map-based model of the LifecycleController and of the memory that it manages, written without
// its code: it knows tokens, and what every slot of every tier holds. Blocks, keys and reference
// counts are unknown to it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "kv/lifecycle_controller.h"

namespace hisparse::tests {

using Tokens = std::vector<base::TokenId>;
using Sequence = std::int64_t;
using Disagreement = std::optional<std::string>;

// What a plan was asked for, in the model's words.
struct ModelPlan {
  struct Admission {
    Sequence sequence = 0;
    int root = 0;
    Tokens prompt;
    std::int64_t matched = 0;   // pages
    std::int64_t reserved = 0;  // pages
  };
  std::vector<Sequence> releases;
  std::vector<Admission> admissions;
  std::map<Sequence, std::int64_t> growths;  // pages

  bool releases_sequence(Sequence sequence) const;
  const Admission* admission_of(Sequence sequence) const;
};

// Follows the controller through the deltas and transfers that it tells of, and answers the first
// thing that cannot be in words.
class LifecycleModel final {
 public:
  explicit LifecycleModel(const kv::ControllerConfig& config);

  // Full pages of the prompt (all but its last token) that running sequences hold: no match may be
  // shorter.
  std::int64_t pages_held_of(int root, const Tokens& prompt) const;
  std::int64_t pages_for(std::int64_t tokens) const;
  // Pages that a sequence holds, or has reserved, once `plan` is done.
  std::int64_t pages_held(Sequence sequence, const ModelPlan& plan) const;
  std::int64_t reserved(Sequence sequence, const ModelPlan& plan) const;
  // Slots of all tiers that no sequence uses or has reserved once `plan` is done.
  std::int64_t available(const ModelPlan& plan) const;

  Disagreement committed(const ModelPlan& plan, const kv::KvCommit& commit);
  Disagreement wrote(Sequence sequence, const Tokens& tokens, const kv::KvCommit& commit);
  Disagreement released(Sequence sequence, const kv::KvCommit& commit);
  // The mover has (or has not) copied the page.
  Disagreement moved(const kv::TransferOp& op, bool filled, const kv::KvCommit& commit);
  Disagreement lost(const kv::KvCommit& commit);
  // The process dies. What the next one is told that the disk holds.
  std::vector<kv::PersistedPage> restart();

  // Reads every sequence's tokens back through its block table, and compares what the controller
  // shows with the model.
  Disagreement compare(const kv::LifecycleController& controller) const;

  bool has(Sequence sequence) const { return sequences_.contains(sequence); }
  std::vector<Sequence> sequences() const;
  std::int64_t written(Sequence sequence) const;
  std::int64_t room(Sequence sequence) const;  // tokens that fit behind what is written
  std::vector<kv::TransferOp> transfers() const;
  std::vector<kv::Location> read_locations() const;
  // The first page of a sequence, one of its two most recent full ones, or read by several.
  bool is_protected(const kv::Location& location) const;

 private:
  // A page's tokens, and all that stands before them: equal tokens behind other ones have other
  // keys and values.
  struct Content {
    int root = 0;
    Tokens before;
    Tokens tokens;
    bool operator==(const Content&) const = default;
  };
  struct Live {
    int root = 0;
    Tokens tokens;
    std::vector<kv::Location> table;
    std::int64_t reserved = 0;
  };

  Content& at(const kv::Location& location);
  const Content& at(const kv::Location& location) const;
  Content expected(const Live& live, std::size_t page) const;
  bool read_by_anybody(const kv::Location& location) const;
  bool moved_by_anything(const kv::Location& location) const;
  void leave(Sequence sequence);
  Disagreement take(const kv::TableDelta& delta, std::map<Sequence, std::int64_t>& fresh);
  Disagreement take_all(const std::vector<kv::TableDelta>& deltas,
                        std::map<Sequence, std::int64_t>& fresh);
  Disagreement start(const kv::TransferPlan& plan);
  Disagreement nobody_reads(const std::vector<kv::Location>& freed) const;
  Disagreement no_growth(const kv::KvCommit& commit);

  kv::ControllerConfig config_;
  std::map<Sequence, Live> sequences_;
  std::array<std::vector<Content>, kv::kTiers> memory_;  // [tier][slot]
  std::map<std::int64_t, kv::TransferOp> transfers_;     // by id
  std::map<base::SlotId, kv::PersistedPage> manifest_;
};

}  // namespace hisparse::tests
