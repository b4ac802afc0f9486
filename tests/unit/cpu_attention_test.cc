#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpu_test_support.h"

namespace hisparse::device {
namespace {

using base::DType;

struct Heads {
  std::int32_t heads, kv_heads, head_dim;
};

struct Row {
  std::int32_t slot;
  std::int64_t position;
};

// The keys and values of some sequences, [sequences, tokens, kv_heads, head_dim] each.
struct History {
  History(const Heads& shape, std::int64_t sequences, std::int64_t tokens)
      : heads(shape),
        sequences(sequences),
        tokens(tokens),
        width(std::int64_t{shape.kv_heads} * shape.head_dim),
        k(random_floats(sequences * tokens * width, 11)),
        v(random_floats(sequences * tokens * width, 12)) {}

  Heads heads;
  std::int64_t sequences, tokens, width;
  std::vector<float> k, v;
};

std::vector<std::int32_t> slots_of(const std::vector<Row>& rows) {
  std::vector<std::int32_t> slots;
  for (const Row& row : rows) slots.push_back(row.slot);
  return slots;
}

std::vector<std::int64_t> positions_of(const std::vector<Row>& rows) {
  std::vector<std::int64_t> positions;
  for (const Row& row : rows) positions.push_back(row.position);
  return positions;
}

struct PageShape {
  std::int32_t page_tokens = 64;
  DType dtype = DType::kF32;
  std::uint32_t shuffle = 1;  // order of the pages in memory
};

// A history in shuffled pages of a device. What no token was stored to is NaN.
class PagedHistory final {
 public:
  PagedHistory(TestDevice& device, const History& history, const PageShape& shape)
      : device_(device), history_(history) {
    const std::int64_t row_bytes = history.width * base::block_shape(shape.dtype).bytes;
    constexpr std::int64_t kPad = 64;
    pages_.pages_per_sequence = history.tokens / shape.page_tokens + 2;
    pages_.k_offset = kPad;
    pages_.v_offset = 2 * kPad + shape.page_tokens * row_bytes;
    pages_.page_tokens = shape.page_tokens;
    pages_.kv_heads = history.heads.kv_heads;
    pages_.head_dim = history.heads.head_dim;
    pages_.dtype = shape.dtype;
    const std::int64_t page_bytes = pages_.v_offset + shape.page_tokens * row_bytes;
    std::vector<std::uint64_t> order(
        static_cast<std::size_t>(history.sequences * pages_.pages_per_sequence));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(shape.shuffle));
    slab_ = device.allocate(order.size() * static_cast<std::size_t>(page_bytes));
    for (auto& page : order) {
      page = slab_.as<std::byte>().address() + page * static_cast<std::uint64_t>(page_bytes);
    }
    table_ = device.upload(order);
    pages_.addresses = table_.as<std::uint64_t>();
    store_all();
  }

  const KvPages& pages() const { return pages_; }

  // [rows, heads, head_dim]; with `borders` in several calls, each up to one of these segments.
  std::vector<float> attend(const std::vector<Row>& rows, const std::vector<float>& q,
                            std::vector<std::int64_t> borders = {}) {
    Buffer slots = device_.upload(slots_of(rows));
    Buffer positions = device_.upload(positions_of(rows));
    Buffer q_buffer = device_.upload(q);
    Buffer out = device_.floats(static_cast<std::int64_t>(q.size()));
    const auto row_count = static_cast<std::int64_t>(rows.size());
    Buffer state = device_.floats(row_count * history_.heads.heads *
                                  (kPartialHeader + history_.heads.head_dim));
    borders.push_back(kAllSegments);
    std::int64_t first = 0;
    for (const std::int64_t end : borders) {
      device_.device->paged_attention(
          {.q = q_buffer.as<float>(),
           .out = out.as<float>(),
           .placement = {.sequence_slots = slots.as<std::int32_t>(),
                         .positions = positions.as<std::int64_t>(),
                         .rows = row_count},
           .pages = pages_,
           .heads = history_.heads.heads,
           .scale = 1.0f / std::sqrt(static_cast<float>(history_.heads.head_dim)),
           .window = {.first = first, .end = end, .state = state.as<float>()}},
          *device_.stream);
      first = end;
    }
    return device_.download(out);
  }

 private:
  void store_all() {
    std::vector<Row> rows;
    for (std::int32_t s = 0; s < history_.sequences; ++s) {
      for (std::int64_t t = 0; t < history_.tokens; ++t) rows.push_back({s, t});
    }
    Buffer slots = device_.upload(slots_of(rows));
    Buffer positions = device_.upload(positions_of(rows));
    Buffer k = device_.upload(history_.k);
    Buffer v = device_.upload(history_.v);
    Buffer q = device_.floats(1);
    device_.device->rope_and_store({.q = q.as<float>(),
                                    .k = k.as<float>(),
                                    .v = v.as<float>(),
                                    .cos_sin = q.as<float>(),
                                    .placement = {.sequence_slots = slots.as<std::int32_t>(),
                                                  .positions = positions.as<std::int64_t>(),
                                                  .rows = static_cast<std::int64_t>(rows.size())},
                                    .pages = pages_,
                                    .rotary_pairs = 0,
                                    .heads = 0},
                                   *device_.stream);
    device_.synchronize();
  }

  TestDevice& device_;
  const History& history_;
  KvPages pages_;
  Buffer slab_;
  Buffer table_;
};

// softmax(scale * q k^T) v of one query over tokens 0 ... position, in double.
std::vector<double> reference(const History& history, const Row& row, const float* q,
                              std::int32_t head, DType dtype) {
  const auto seen = [&](float x) -> double {
    return dtype == DType::kBF16 ? rounded_to_bf16(x) : x;
  };
  const std::int64_t dim = history.heads.head_dim;
  const std::int64_t kv_head = head / (history.heads.heads / history.heads.kv_heads);
  std::vector<double> scores;
  const auto at = [&](std::int64_t t) {
    return (row.slot * history.tokens + t) * history.width + kv_head * dim;
  };
  for (std::int64_t t = 0; t <= row.position; ++t) {
    double dot = 0.0;
    for (std::int64_t d = 0; d < dim; ++d) dot += q[d] * seen(history.k[at(t) + d]);
    scores.push_back(dot / std::sqrt(static_cast<double>(dim)));
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  std::vector<double> out(static_cast<std::size_t>(dim));
  for (std::int64_t t = 0; t <= row.position; ++t) {
    const double weight = std::exp(scores[t] - max);
    sum += weight;
    for (std::int64_t d = 0; d < dim; ++d) out[d] += weight * seen(history.v[at(t) + d]);
  }
  for (double& value : out) value /= sum;
  return out;
}

void expect_reference(const History& history, const std::vector<Row>& rows,
                      const std::vector<float>& q, const std::vector<float>& out, DType dtype) {
  const std::int64_t dim = history.heads.head_dim;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::int32_t h = 0; h < history.heads.heads; ++h) {
      const std::int64_t at = (static_cast<std::int64_t>(r) * history.heads.heads + h) * dim;
      const auto expected = reference(history, rows[r], q.data() + at, h, dtype);
      for (std::int64_t d = 0; d < dim; ++d) {
        ASSERT_NEAR(out[at + d], expected[d], 2e-5) << "position " << rows[r].position;
      }
    }
  }
}

std::vector<float> queries(const Heads& heads, std::size_t rows) {
  return random_floats(static_cast<std::int64_t>(rows) * heads.heads * heads.head_dim, 21);
}

TEST(CpuAttention, MatchesDoublePrecision) {
  constexpr std::int64_t kTokens = 600;
  const std::vector<Row> rows = {{0, 0},   {1, 1},   {0, 254}, {0, 255}, {0, 256}, {1, 257},
                                 {1, 300}, {1, 511}, {0, 512}, {0, 599}, {1, 37},  {1, 38}};
  for (const Heads& heads : {Heads{4, 2, 64}, Heads{3, 3, 8}, Heads{9, 3, 40}, Heads{16, 1, 32},
                             Heads{2, 1, 13}, Heads{12, 1, 128}, Heads{50, 1, 16}}) {
    const History history(heads, 2, kTokens);
    const auto q = queries(heads, rows.size());
    for (IsaChoice isa : isa_levels()) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        for (std::int32_t page_tokens : {16, 48}) {
          TestDevice device(isa, 2);
          PagedHistory paged(device, history, {.page_tokens = page_tokens, .dtype = dtype});
          expect_reference(history, rows, q, paged.attend(rows, q), dtype);
        }
      }
    }
  }
}

// The contract of ARCHITECTURE section 2a: one row alone is the measure of every batch.
TEST(CpuAttention, RowHasTheSameBitsInEveryBatchPageSizeAndThreadCount) {
  constexpr std::int64_t kTokens = 1400;
  for (const Heads& heads :
       {Heads{6, 2, 64}, Heads{10, 1, 40}, Heads{3, 3, 13}, Heads{50, 1, 16}}) {
    const History history(heads, 2, kTokens);
    std::vector<Row> rows;
    // A prefill chunk over two segment borders, then decode rows of both sequences.
    for (std::int64_t t = 500; t < 540; ++t) rows.push_back({0, t});
    for (std::int64_t t : {0, 255, 256, 1399, 3, 1024}) {
      rows.push_back({1, t});
      rows.push_back({0, t});
    }
    const auto q = queries(heads, rows.size());
    const std::int64_t width = std::int64_t{heads.heads} * heads.head_dim;
    for (IsaChoice isa : isa_levels()) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        std::vector<float> alone;
        TestDevice single(isa, 1);
        PagedHistory plain(single, history, {.page_tokens = 256, .dtype = dtype});
        for (std::size_t r = 0; r < rows.size(); ++r) {
          const auto row = row_of(q, static_cast<std::int64_t>(r), width);
          const auto out = plain.attend({rows[r]}, {row.begin(), row.end()});
          alone.insert(alone.end(), out.begin(), out.end());
        }
        for (int threads : {1, 2, 3}) {
          for (std::int32_t page_tokens : {1, 16, 48, 64, 256}) {
            TestDevice device(isa, threads);
            PagedHistory paged(device, history,
                               {.page_tokens = page_tokens,
                                .dtype = dtype,
                                .shuffle = static_cast<std::uint32_t>(page_tokens)});
            ASSERT_TRUE(same_bits(paged.attend(rows, q), alone))
                << threads << " threads, pages of " << page_tokens;
            // A few long rows: the segments are shared between the threads.
            const std::vector<Row> last(rows.end() - 3, rows.end());
            const auto tail = std::span(alone).last(static_cast<std::size_t>(3 * width));
            ASSERT_TRUE(same_bits(paged.attend(last, {q.end() - 3 * width, q.end()}), tail));
            // Windows of segments, for many rows and for few.
            ASSERT_TRUE(same_bits(paged.attend(rows, q, {1, 2, 4}), alone));
            ASSERT_TRUE(
                same_bits(paged.attend(last, {q.end() - 3 * width, q.end()}, {3, 4}), tail));
          }
        }
      }
    }
  }
}

TEST(CpuAttention, ManyWavesOfSegmentsMergeInOrder) {
  const Heads heads = {2, 1, 8};
  const History history(heads, 1, 270 * 256 + 5);
  const std::vector<Row> rows = {{0, 270 * 256 + 4}};
  const auto q = queries(heads, 1);
  TestDevice single(IsaChoice::kBest, 1);
  TestDevice several(IsaChoice::kBest, 3);
  const auto serial = PagedHistory(single, history, {}).attend(rows, q);
  const auto shared = PagedHistory(several, history, {}).attend(rows, q);
  EXPECT_TRUE(same_bits(serial, shared));
  expect_reference(history, rows, q, serial, DType::kF32);
}

TEST(CpuAttention, NeverReadsBehindItsPosition) {
  // The slab is NaN where nothing was stored, and later tokens of the sequence are NaN too.
  const Heads heads = {4, 2, 16};
  History history(heads, 1, 300);
  const std::vector<Row> rows = {{0, 254}, {0, 255}, {0, 256}, {0, 259}};
  for (std::int64_t t = 260; t < 300; ++t) {
    std::fill_n(history.k.begin() + t * history.width, history.width, NAN);
    std::fill_n(history.v.begin() + t * history.width, history.width, NAN);
  }
  const auto q = queries(heads, rows.size());
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    TestDevice device;
    PagedHistory paged(device, history, {.page_tokens = 48, .dtype = dtype});
    expect_reference(history, rows, q, paged.attend(rows, q), dtype);
  }
}

TEST(CpuAttention, ReadingWhatWasNeverWrittenShows) {
  const Heads heads = {2, 2, 16};
  const History history(heads, 1, 40);
  TestDevice device;
  PagedHistory paged(device, history, {.page_tokens = 64});
  const auto out = paged.attend({{0, 40}}, queries(heads, 1));
  for (float value : out) EXPECT_TRUE(std::isnan(value));
}

TEST(CpuAttention, HugeScoresDoNotOverflow) {
  const Heads heads = {1, 1, 8};
  History history(heads, 1, 520);
  for (float& value : history.k) value *= 1000.0f;
  const std::vector<Row> rows = {{0, 519}, {0, 255}};
  const auto q = queries(heads, rows.size());
  TestDevice device;
  expect_reference(history, rows, q, PagedHistory(device, history, {}).attend(rows, q),
                   DType::kF32);
}

TEST(CpuRope, AnglesAreRightAtAMillion) {
  const std::vector<std::int64_t> positions = {0, 1, 4095, (1 << 20) - 1};
  const std::vector<double> frequencies = {1.0, 0.1, 1e-4};
  TestDevice device;
  Buffer position_buffer = device.upload(positions);
  Buffer frequency_buffer = device.upload(frequencies);
  Buffer out = device.floats(4 * 3 * 2);
  device.device->rope_angles({.positions = position_buffer.as<std::int64_t>(),
                              .inverse_frequencies = frequency_buffer.as<double>(),
                              .cos_sin = out.as<float>(),
                              .rows = 4,
                              .rotary_pairs = 3},
                             *device.stream);
  const auto cos_sin = device.download(out);
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t i = 0; i < 3; ++i) {
      const long double angle = static_cast<long double>(positions[r]) * frequencies[i];
      EXPECT_NEAR(cos_sin[(r * 3 + i) * 2], static_cast<double>(std::cos(angle)), 6e-8);
      EXPECT_NEAR(cos_sin[(r * 3 + i) * 2 + 1], static_cast<double>(std::sin(angle)), 6e-8);
    }
  }
}

TEST(CpuRope, RotatesHalfSplitPairsAndStoresRowsInTheirPages) {
  constexpr std::int32_t kDim = 10;
  constexpr std::int64_t kPairs = 4;  // the last two values of a head are copied
  constexpr std::int32_t kPageTokens = 3;
  const std::vector<Row> rows = {{1, 4}, {0, 0}, {1, 5}};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    TestDevice device;
    const auto q = random_floats(3 * 4 * kDim, 1);
    const auto k = random_floats(3 * 2 * kDim, 2);
    const auto v = random_floats(3 * 2 * kDim, 3);
    const auto angles = random_floats(3 * kPairs, 4);
    std::vector<float> cos_sin;
    for (float angle : angles) cos_sin.insert(cos_sin.end(), {std::cos(angle), std::sin(angle)});
    const std::size_t row_bytes = 2 * kDim * base::block_shape(dtype).bytes;
    const std::size_t page_bytes = 2 * kPageTokens * row_bytes;
    Buffer slab = device.allocate(4 * page_bytes);
    // Page p of sequence s is the slab's page 3 - (2 s + p).
    std::vector<std::uint64_t> table;
    for (std::size_t i = 0; i < 4; ++i) {
      table.push_back(slab.as<std::byte>().address() + (3 - i) * page_bytes);
    }
    Buffer table_buffer = device.upload(table);
    Buffer q_buffer = device.upload(q), k_buffer = device.upload(k), v_buffer = device.upload(v);
    Buffer angle_buffer = device.upload(cos_sin);
    Buffer slots = device.upload(slots_of(rows)), positions = device.upload(positions_of(rows));
    device.device->rope_and_store(
        {.q = q_buffer.as<float>(),
         .k = k_buffer.as<float>(),
         .v = v_buffer.as<float>(),
         .cos_sin = angle_buffer.as<float>(),
         .placement = {.sequence_slots = slots.as<std::int32_t>(),
                       .positions = positions.as<std::int64_t>(),
                       .rows = 3},
         .pages = {.addresses = table_buffer.as<std::uint64_t>(),
                   .pages_per_sequence = 2,
                   .k_offset = 0,
                   .v_offset = static_cast<std::int64_t>(kPageTokens * row_bytes),
                   .page_tokens = kPageTokens,
                   .kv_heads = 2,
                   .head_dim = kDim,
                   .dtype = dtype},
         .rotary_pairs = kPairs,
         .heads = 4},
        *device.stream);
    const auto rotated = [&](const std::vector<float>& x, std::int64_t width, std::int64_t r,
                             std::int64_t i) -> double {
      const std::int64_t d = i % kDim;
      if (d >= 2 * kPairs) return x[r * width + i];
      const double angle = angles[r * kPairs + d % kPairs];
      const double low = x[r * width + i - (d < kPairs ? 0 : kPairs)];
      const double high = x[r * width + i + (d < kPairs ? kPairs : 0)];
      return d < kPairs ? low * std::cos(angle) - high * std::sin(angle)
                        : high * std::cos(angle) + low * std::sin(angle);
    };
    const auto q_out = device.download(q_buffer);
    const auto bytes = device.download<std::byte>(slab);
    const auto stored = [&](std::size_t row_start, std::size_t i) {
      if (dtype == DType::kF32) {
        float value;
        std::memcpy(&value, bytes.data() + row_start + i * sizeof(float), sizeof(float));
        return value;
      }
      base::bf16 value;
      std::memcpy(&value, bytes.data() + row_start + i * sizeof(value), sizeof(value));
      return base::to_float(value);
    };
    const double tolerance = dtype == DType::kF32 ? 1e-6 : 2e-2;
    for (std::int64_t r = 0; r < 3; ++r) {
      for (std::int64_t i = 0; i < 4 * kDim; ++i) {
        EXPECT_NEAR(q_out[r * 4 * kDim + i], rotated(q, 4 * kDim, r, i), 1e-6);
      }
      const auto page = static_cast<std::size_t>(3 - (2 * rows[r].slot + rows[r].position / 3));
      const std::size_t k_row =
          page * page_bytes + static_cast<std::size_t>(rows[r].position % 3) * row_bytes;
      for (std::int64_t i = 0; i < 2 * kDim; ++i) {
        EXPECT_NEAR(stored(k_row, i), rotated(k, 2 * kDim, r, i), tolerance);
        const float value = v[r * 2 * kDim + i];
        EXPECT_EQ(stored(k_row + kPageTokens * row_bytes, i),
                  dtype == DType::kF32 ? value : rounded_to_bf16(value));
      }
    }
    // Nothing else was written: 3 rows of K and of V.
    const auto untouched = std::count(bytes.begin(), bytes.end(), std::byte{0xFF});
    EXPECT_GE(untouched, static_cast<std::int64_t>(4 * page_bytes - 6 * row_bytes));
  }
}

TEST(CpuAttentionDeathTest, PositionBehindTheTableIsCaught) {
  const Heads heads = {1, 1, 8};
  const History history(heads, 1, 8);
  TestDevice device(IsaChoice::kBest, 1);
  PagedHistory paged(device, history, {.page_tokens = 8});
  EXPECT_DEATH(paged.attend({{0, 8 * paged.pages().pages_per_sequence}}, queries(heads, 1)),
               "pages_per_sequence");
}

}  // namespace
}  // namespace hisparse::device
