// The prefix index: which block holds which content.
#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>

#include "base/ids.h"
#include "kv/block.h"
#include "kv/block_key.h"

namespace hisparse::kv {

// Maps keys to blocks that it does not own. A key only finds a candidate: find() answers it if its
// parent, root and tokens are equal too. At most one block per key; a second content with the same
// key is refused, so a collision costs a miss and never an answer. Engine thread.
class PrefixIndex final {
 public:
  // The block of this content; not valid if there is none. `blocks` is [block id].
  base::BlockId find(const BlockContent& content, std::span<const Block> blocks) const;

  // The block under this key, whatever its content; not valid if there is none.
  base::BlockId at(const BlockKey& key) const;

  // False, and nothing changed, when the key is taken.
  [[nodiscard]] bool insert(const BlockKey& key, base::BlockId block);
  void erase(const BlockKey& key, base::BlockId block);  // must be there (checked)

  std::size_t size() const { return blocks_.size(); }

 private:
  std::unordered_map<BlockKey, base::BlockId, BlockKeyHash> blocks_;
};

}  // namespace hisparse::kv
