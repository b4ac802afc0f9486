#include "tests/recall/recall_context.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "tests/recall/draws.h"

namespace hisparse::test {
namespace {

constexpr std::uint64_t kFirstStream = 1000;
constexpr std::int32_t kEdgeRows = 3;  // before, at and behind the beginning of a page

// A key and the value behind it.
struct Pair {
  base::TokenId key = 0;
  base::TokenId value = 0;
  std::int64_t* row = nullptr;  // receives the place of the value; none: a decoy
};

class Builder final {
 public:
  Builder(const RecallVocabulary& vocabulary, const ContextOptions& options)
      : vocabulary_(vocabulary),
        options_(options),
        draws_(options.seed, kFirstStream + static_cast<std::uint64_t>(options.number)),
        chains_(vocabulary.shape().chains) {
    context_.tokens.assign(static_cast<std::size_t>(options.tokens), -1);
    context_.tokens.front() = RecallVocabulary::begin();
  }

  RecallContext build() && {
    draw_links();
    add_chains();
    place_pairs();
    fill();
    add_absent();
    return std::move(context_);
  }

 private:
  // links_[hop][i]: the number of the key that key i of the hop leads to. Rung and KV head stay.
  void draw_links() {
    const std::int32_t period = vocabulary_.period();
    for (std::vector<std::int32_t>& link : links_) {
      link.resize(static_cast<std::size_t>(chains_));
      for (std::int32_t first = 0; first < period; ++first) {
        std::vector<std::int32_t> same;
        for (std::int32_t i = first; i < chains_; i += period) same.push_back(i);
        draws_.shuffle(std::span(same));
        for (std::size_t i = 0; i < same.size(); ++i) {
          link[static_cast<std::size_t>(first) + i * static_cast<std::size_t>(period)] = same[i];
        }
      }
    }
  }

  void add_chains() {
    context_.needles.resize(static_cast<std::size_t>(chains_));
    for (std::int32_t start = 0; start < chains_; ++start) {
      Needle& needle = context_.needles[static_cast<std::size_t>(start)];
      needle.query = vocabulary_.hop_key(0, start);
      needle.rung = vocabulary_.rung(start);
      const bool decoy = needle.rung < kRungs - 1;
      if (decoy) needle.decoy_hop = (start / vocabulary_.period() + options_.number) % kRecallHops;
      std::int32_t at = start;
      for (int hop = 0; hop < kRecallHops; ++hop) {
        const std::int32_t next =
            links_[static_cast<std::size_t>(hop)][static_cast<std::size_t>(at)];
        pairs_.push_back({.key = vocabulary_.hop_key(hop, at),
                          .value = vocabulary_.value_of(vocabulary_.hop_key(hop + 1, next)),
                          .row = &needle.rows[static_cast<std::size_t>(hop)]});
        if (hop == needle.decoy_hop) add_decoy(hop, at, next);
        at = next;
      }
      needle.answer = vocabulary_.answer(at);
    }
  }

  // Leads into the chain of another needle, so that whoever takes it gives a wrong answer.
  void add_decoy(int hop, std::int32_t at, std::int32_t next) {
    const std::int32_t other = (next + vocabulary_.period()) % chains_;
    decoys_.push_back({.key = vocabulary_.decoy(hop, at),
                       .value = vocabulary_.value_of(vocabulary_.hop_key(hop + 1, other))});
  }

  // Whether the key fits in front of `row`; takes the place if it does.
  bool place(const Pair& pair, std::int64_t row) {
    if (row < 2 || row >= options_.tokens) return false;
    base::TokenId* const value = context_.tokens.data() + row;
    if (value[0] >= 0 || value[-1] >= 0) return false;
    value[-1] = pair.key;
    value[0] = pair.value;
    if (pair.row != nullptr) *pair.row = row;
    return true;
  }

  std::vector<std::int64_t> wanted_rows() const {
    std::vector<std::int64_t> rows = {2, options_.tokens - 1};
    for (std::size_t i = 0; i < options_.edges.size(); ++i) {
      const auto turn = static_cast<std::int64_t>(i) + options_.number;
      rows.push_back(options_.edges[i] * options_.page_tokens + turn % kEdgeRows - 1);
    }
    return rows;
  }

  void place_pairs() {
    // Places are drawn until they are free.
    constexpr std::size_t kRoom = 4;
    const std::size_t all = pairs_.size() + decoys_.size();
    HS_CHECK(context_.tokens.size() >= kRoom * all);
    draws_.shuffle(std::span(pairs_));
    std::size_t next = 0;
    for (const std::int64_t row : wanted_rows()) {
      if (next < pairs_.size() && place(pairs_[next], row)) ++next;
    }
    std::vector<Pair> others(pairs_.begin() + static_cast<std::ptrdiff_t>(next), pairs_.end());
    others.insert(others.end(), decoys_.begin(), decoys_.end());
    for (const Pair& pair : others) {
      while (!place(pair, draws_.below(options_.tokens))) {
      }
    }
  }

  void fill() {
    for (base::TokenId& token : context_.tokens) {
      if (token >= 0) continue;
      token =
          vocabulary_.filler(static_cast<std::int32_t>(draws_.below(vocabulary_.shape().fillers)));
      if (draws_.uniform() < 0.5) token = vocabulary_.value_of(token);
    }
  }

  void add_absent() {
    for (std::int32_t i = 0; i < vocabulary_.shape().absent; ++i) {
      context_.needles.push_back({.query = vocabulary_.absent(i),
                                  .answer = RecallVocabulary::none(),
                                  .rung = Needle::kAbsent,
                                  .rows = {}});
    }
  }

  const RecallVocabulary& vocabulary_;
  const ContextOptions& options_;
  Draws draws_;
  const std::int32_t chains_;
  std::array<std::vector<std::int32_t>, kRecallHops> links_;
  std::vector<Pair> pairs_, decoys_;
  RecallContext context_;
};

}  // namespace

RecallContext make_context(const RecallVocabulary& vocabulary, const ContextOptions& options) {
  HS_CHECK(options.tokens > 2);
  return Builder(vocabulary, options).build();
}

}  // namespace hisparse::test
