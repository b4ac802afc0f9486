// The attention that each page gets, against a plain computation in double.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpu_test_support.h"

namespace hisparse::device {
namespace {

using base::DType;

struct Shape {
  std::int32_t heads = 4;
  std::int32_t kv_heads = 2;
  std::int32_t head_dim = 64;
  std::int32_t page_tokens = 16;
  DType dtype = DType::kF32;
};

// The second of two sequences: keys of some tokens in shuffled pages. All else is NaN.
class Keys final {
 public:
  static constexpr std::int32_t kSlot = 1;

  Keys(TestDevice& device, const Shape& shape, std::int64_t tokens)
      : device_(device), shape_(shape), tokens_(tokens), values_(make_values()) {
    const std::int64_t element = base::block_shape(shape.dtype).bytes;
    const std::int64_t row_bytes = shape.kv_heads * shape.head_dim * element;
    constexpr std::int64_t kPad = 64;
    pages_ = {.addresses = {},
              .pages_per_sequence = tokens / shape.page_tokens + 2,
              .k_offset = kPad,
              .v_offset = 2 * kPad + shape.page_tokens * row_bytes,
              .page_tokens = shape.page_tokens,
              .kv_heads = shape.kv_heads,
              .head_dim = shape.head_dim,
              .dtype = shape.dtype};
    const std::int64_t page_bytes = pages_.v_offset + shape.page_tokens * row_bytes;
    std::vector<std::uint64_t> order(static_cast<std::size_t>(2 * pages_.pages_per_sequence));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(3));
    std::vector<std::byte> slab(order.size() * static_cast<std::size_t>(page_bytes),
                                std::byte{0xFF});
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto entry = kSlot * pages_.pages_per_sequence + t / shape.page_tokens;
      const auto page = static_cast<std::int64_t>(order[static_cast<std::size_t>(entry)]);
      store(t,
            slab.data() + page * page_bytes + pages_.k_offset + t % shape.page_tokens * row_bytes);
    }
    slab_ = device.upload(slab);
    for (auto& page : order) {
      page = slab_.as<std::byte>().address() + page * static_cast<std::uint64_t>(page_bytes);
    }
    table_ = device.upload(order);
    pages_.addresses = table_.as<std::uint64_t>();
  }

  std::vector<float> masses(const std::vector<float>& q, std::int64_t position,
                            const std::vector<std::int32_t>& pages) {
    Buffer q_buffer = device_.upload(q);
    Buffer indices = device_.upload(pages);
    Buffer out = device_.floats(static_cast<std::int64_t>(pages.size()));
    device_.device->page_mass({.q = q_buffer.as<float>(),
                               .page_indices = indices.as<std::int32_t>(),
                               .masses = out.as<float>(),
                               .count = static_cast<std::int64_t>(pages.size()),
                               .position = position,
                               .sequence_slot = kSlot,
                               .heads = shape_.heads,
                               .scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
                               .pages = pages_},
                              *device_.stream);
    return device_.download(out);
  }

  std::vector<double> expected(const std::vector<float>& q, std::int64_t position,
                               const std::vector<std::int32_t>& pages) const {
    std::vector<double> masses(pages.size(), 0.0);
    for (std::int32_t head = 0; head < shape_.heads; ++head) {
      std::vector<double> weights(pages.size(), 0.0);
      for (std::size_t i = 0; i < pages.size(); ++i) {
        for (std::int64_t t = pages[i] * shape_.page_tokens;
             t < std::min<std::int64_t>((pages[i] + 1) * shape_.page_tokens, position + 1); ++t) {
          weights[i] += std::exp(score(q, head, t));
        }
      }
      const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (std::size_t i = 0; i < pages.size(); ++i) {
        masses[i] += weights[i] / total / shape_.heads;
      }
    }
    return masses;
  }

 private:
  std::vector<float> make_values() const {
    auto values = random_floats(tokens_ * shape_.kv_heads * shape_.head_dim, 5);
    if (shape_.dtype == DType::kBF16) {
      for (float& value : values) value = rounded_to_bf16(value);
    }
    return values;
  }

  void store(std::int64_t token, std::byte* row) const {
    const std::int64_t width = std::int64_t{shape_.kv_heads} * shape_.head_dim;
    for (std::int64_t i = 0; i < width; ++i) {
      const float value = values_[static_cast<std::size_t>(token * width + i)];
      const base::bf16 narrow = base::to_bf16(value);
      if (shape_.dtype == DType::kBF16) {
        std::memcpy(row + i * 2, &narrow, 2);
      } else {
        std::memcpy(row + i * 4, &value, 4);
      }
    }
  }

  double score(const std::vector<float>& q, std::int32_t head, std::int64_t token) const {
    const std::int32_t kv_head = head / (shape_.heads / shape_.kv_heads);
    double sum = 0.0;
    for (std::int32_t d = 0; d < shape_.head_dim; ++d) {
      const auto at = (token * shape_.kv_heads + kv_head) * shape_.head_dim + d;
      sum += static_cast<double>(q[static_cast<std::size_t>(head * shape_.head_dim + d)]) *
             static_cast<double>(values_[static_cast<std::size_t>(at)]);
    }
    return sum / std::sqrt(static_cast<double>(shape_.head_dim));
  }

  TestDevice& device_;
  const Shape shape_;
  const std::int64_t tokens_;
  const std::vector<float> values_;  // [tokens, kv_heads, head_dim]
  KvPages pages_;
  Buffer slab_, table_;
};

std::vector<std::int32_t> all_pages(const Shape& shape, std::int64_t position) {
  std::vector<std::int32_t> pages(static_cast<std::size_t>(position / shape.page_tokens + 1));
  std::iota(pages.begin(), pages.end(), 0);
  return pages;
}

class PageMass : public testing::TestWithParam<IsaChoice> {
 protected:
  void expect_right(const Shape& shape, std::int64_t tokens, std::int64_t position,
                    const std::vector<std::int32_t>& pages) {
    TestDevice device(GetParam(), 3);
    Keys keys(device, shape, tokens);
    // Scores of a few units: some pages get nearly all.
    std::vector<float> q = random_floats(std::int64_t{shape.heads} * shape.head_dim, 7);
    for (float& value : q) value *= 2.0f;
    const std::vector<float> masses = keys.masses(q, position, pages);
    const std::vector<double> expected = keys.expected(q, position, pages);
    double sum = 0.0;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      EXPECT_NEAR(masses[i], expected[i], 2e-5 * expected[i] + 1e-9) << "page " << pages[i];
      sum += static_cast<double>(masses[i]);
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
  }
};

TEST_P(PageMass, IsTheShareOfTheAttentionThatAPageGets) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int32_t page_tokens : {1, 16, 64}) {
      for (const std::int64_t position : {0, 15, 16, 200, 777}) {
        SCOPED_TRACE(std::to_string(page_tokens) + " tokens, position " + std::to_string(position));
        const Shape shape = {.page_tokens = page_tokens, .dtype = dtype};
        expect_right(shape, position + 1, position, all_pages(shape, position));
      }
    }
  }
}

TEST_P(PageMass, TakesAnyHeads) {
  for (const Shape& shape : {Shape{.heads = 1, .kv_heads = 1, .head_dim = 8},
                             Shape{.heads = 9, .kv_heads = 3, .head_dim = 20},
                             Shape{.heads = 6, .kv_heads = 1, .head_dim = 96},
                             Shape{.heads = 5, .kv_heads = 5, .head_dim = 128}}) {
    expect_right(shape, 100, 99, all_pages(shape, 99));
  }
}

TEST_P(PageMass, OfOnePageIsNeverAboveOne) {
  const Shape shape = {.heads = 24, .kv_heads = 8};
  TestDevice device(GetParam(), 2);
  Keys keys(device, shape, shape.page_tokens);
  const std::vector<float> q = random_floats(std::int64_t{shape.heads} * shape.head_dim, 7);
  for (std::int64_t position = 0; position < shape.page_tokens; ++position) {
    const float mass = keys.masses(q, position, {0}).front();
    EXPECT_LE(mass, 1.0f) << "position " << position;
    EXPECT_NEAR(mass, 1.0f, 1e-5f) << "position " << position;
  }
}

TEST_P(PageMass, LooksOnlyAtThePagesOfItsList) {
  const Shape shape;
  expect_right(shape, 300, 299, {0, 3, 4, 9, 18});
  expect_right(shape, 300, 299, {18});
}

TEST_P(PageMass, SeesNoTokenBehindTheQuery) {
  const Shape shape;
  expect_right(shape, 300, 150, all_pages(shape, 150));
}

TEST_P(PageMass, DoesNotDependOnThreads) {
  const Shape shape = {.heads = 8, .kv_heads = 2, .head_dim = 128, .page_tokens = 32};
  const std::vector<float> q = random_floats(std::int64_t{shape.heads} * shape.head_dim, 7);
  TestDevice one(GetParam(), 1), four(GetParam(), 4);
  EXPECT_TRUE(same_bits(Keys(one, shape, 3000).masses(q, 2999, all_pages(shape, 2999)),
                        Keys(four, shape, 3000).masses(q, 2999, all_pages(shape, 2999))));
}

TEST_P(PageMass, LargeScoresDoNotOverflow) {
  const Shape shape;
  TestDevice device(GetParam(), 2);
  Keys keys(device, shape, 200);
  std::vector<float> q = random_floats(std::int64_t{shape.heads} * shape.head_dim, 7);
  for (float& value : q) value *= 1e4f;
  const std::vector<float> masses = keys.masses(q, 199, all_pages(shape, 199));
  EXPECT_NEAR(std::accumulate(masses.begin(), masses.end(), 0.0f), 1.0f, 1e-5f);
}

INSTANTIATE_TEST_SUITE_P(Levels, PageMass, testing::ValuesIn(isa_levels()), [](const auto& info) {
  return "V" + std::to_string(static_cast<int>(info.param));
});

}  // namespace
}  // namespace hisparse::device
