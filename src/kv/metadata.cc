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

std::int64_t block_bytes(const ControllerConfig& config) {
  return kSize<Block> + kPiece + config.page_tokens * kSize<base::TokenId> +
         kSize<base::BlockId> +                            // the free list
         kHashEntry<std::pair<BlockKey, base::BlockId>> +  // the index
         kPiece + kTreeLinks + kSize<EvictionRank>;
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
  const std::int64_t transfer = kHashEntry<std::pair<base::TransferId, TransferOp>>;
  return kSize<ControllerState> + slots * (kSlotBytes + block_bytes(config)) +
         bounds.sequences * table + config.max_transfers * transfer +
         Heat::bytes({.blocks = slots,
                      .window = config.heat_window,
                      .replan_tokens = config.replan_tokens});
}

}  // namespace hisparse::kv
