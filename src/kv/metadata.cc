#include "kv/metadata.h"

#include "kv/controller_state.h"

namespace hisparse::kv {
namespace {

// What the allocator adds to a piece, the links of a node of a hash table and of a tree, and what
// growing by doubling leaves unused.
constexpr std::int64_t kPiece = 16;
constexpr std::int64_t kHashLinks = 16;
constexpr std::int64_t kTreeLinks = 32;
constexpr std::int64_t kSlack = 2;

template <typename T>
constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));

// With its share of the buckets.
template <typename Entry>
constexpr std::int64_t kHashEntry = kPiece + kHashLinks + kSize<Entry> + kSlack* kSize<void*>;

// An entry of ControllerState::unpersisted.
std::int64_t unpersisted_bytes(const ControllerConfig& config) {
  if (config.persistence == Persistence::kOff) return 0;
  return kPiece + kTreeLinks + kSize<std::pair<std::uint64_t, base::BlockId>>;
}

std::int64_t block_bytes(const ControllerConfig& config) {
  return kSize<Block> + kPiece + config.page_tokens * kSize<base::TokenId> +
         kSize<base::BlockId> +                            // the free list
         kHashEntry<std::pair<BlockKey, base::BlockId>> +  // the index
         kPiece + kTreeLinks + kSize<EvictionRank> + unpersisted_bytes(config);
}

// Of a transfer, with what the next process may know of its page.
std::int64_t transfer_bytes(const ControllerConfig& config) {
  const std::int64_t entry = kHashEntry<std::pair<base::TransferId, TransferOp>>;
  if (config.persistence == Persistence::kOff) return entry;
  return entry + kPiece + kSize<PersistedPage> + kSize<void*> * 2 + kPiece +
         config.page_tokens * kSize<base::TokenId>;
}

constexpr std::int64_t kSlotBytes =
    kSize<std::optional<CopyState>> + kSize<base::BlockId> + kSize<base::SlotId>;

}  // namespace

std::int64_t metadata_bytes_per_slot(const ControllerConfig& config) {
  return kSlotBytes + block_bytes(config) +
         Heat::bytes(
             {.blocks = 1, .window = config.heat_window, .replan_tokens = config.replan_tokens}) -
         Heat::bytes(
             {.blocks = 0, .window = config.heat_window, .replan_tokens = config.replan_tokens});
}

std::int64_t metadata_bytes(const ControllerConfig& config, const TableBounds& bounds) {
  const std::int64_t slots =
      std::int64_t{config.resident_slots} + config.host_slots + config.disk_slots;
  const std::int64_t table = kHashEntry<std::pair<base::SequenceId, SequenceTable>> + kPiece +
                             kSlack * bounds.pages_per_sequence * kSize<base::BlockId>;
  return kSize<ControllerState> + slots * (kSlotBytes + block_bytes(config)) +
         bounds.sequences * table + config.max_transfers * transfer_bytes(config) +
         Heat::bytes({.blocks = slots,
                      .window = config.heat_window,
                      .replan_tokens = config.replan_tokens});
}

}  // namespace hisparse::kv
