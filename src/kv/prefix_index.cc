#include "kv/prefix_index.h"

#include <algorithm>

#include "base/check.h"

namespace hisparse::kv {

base::BlockId PrefixIndex::find(const BlockContent& content, std::span<const Block> blocks) const {
  const base::BlockId id = at(content.key);
  if (!id.valid()) return id;
  const Block& block = blocks[static_cast<std::size_t>(id.value())];
  const bool equal = block.parent == content.parent && block.root == content.root &&
                     std::ranges::equal(block.tokens, content.tokens);
  return equal ? id : base::BlockId();
}

base::BlockId PrefixIndex::at(const BlockKey& key) const {
  const auto found = blocks_.find(key);
  return found == blocks_.end() ? base::BlockId() : found->second;
}

bool PrefixIndex::insert(const BlockKey& key, base::BlockId block) {
  return blocks_.try_emplace(key, block).second;
}

void PrefixIndex::erase(const BlockKey& key, base::BlockId block) {
  const auto found = blocks_.find(key);
  HS_CHECK(found != blocks_.end() && found->second == block);
  blocks_.erase(found);
}

}  // namespace hisparse::kv
