// The matrix product. Every output element is one f32 accumulator over k (over the groups of k, for
// quantised weights) in rising order; all tile sizes are instances of one body, so the number of
// rows does not change the bits.

// k steps whose weights stay in the caches while the rows pass: in the L1 cache, or in the L2 cache
// where the wider tiles of AVX-512 read each value less often. Between blocks the accumulators rest
// in memory, which loses nothing.
#if defined(HISPARSE_AVX512)
constexpr std::int64_t kBlockSteps = 4096;
#else
constexpr std::int64_t kBlockSteps = 256;
#endif
constexpr int kPanelVectors = kPanelColumns / kColumnLanes;
static_assert(kPanelVectors % 2 == 0, "tiles are two vectors wide");

// One row reads its quantised weights once, from memory, with much to do for each line: they are
// fetched this far ahead, over the end of the panel into the next one.
constexpr int kFetchBytes = 4096;

template <int kRows, int kBytes>
inline void fetch_ahead(const void* weights) {
  if constexpr (kRows == 1) {
    const auto* at = static_cast<const char*>(weights) + kFetchBytes;
    for (int line = 0; line < kBytes; line += kLineBytes) __builtin_prefetch(at + line);
  }
}

// Accumulators of one row.
typedef float RowSums[kPanelColumns];

struct TilePlace {
  std::int64_t begin = 0;  // of k
  std::int64_t end = 0;
  int row = 0;     // first row of the tile
  int vector = 0;  // first vector of the panel
};

// Over the rows of a tile by recursion: the compiler may leave a long loop as it is, and the sums
// of the tile in memory.
template <int kRow = 0, int kRows, int kVectors>
inline void load_tile(Columns (&tile)[kRows][kVectors], const RowSums* sums,
                      const TilePlace& place) {
  for (int v = 0; v < kVectors; ++v) {
    if (place.begin == 0) {
      tile[kRow][v] = Columns{};
    } else {
      load(tile[kRow][v], sums[place.row + kRow] + (place.vector + v) * kColumnLanes);
    }
  }
  if constexpr (kRow + 1 < kRows) load_tile<kRow + 1>(tile, sums, place);
}

template <int kRow = 0, int kRows, int kVectors>
inline void store_tile(const Columns (&tile)[kRows][kVectors], RowSums* sums,
                       const TilePlace& place) {
  for (int v = 0; v < kVectors; ++v) {
    store(sums[place.row + kRow] + (place.vector + v) * kColumnLanes, tile[kRow][v]);
  }
  if constexpr (kRow + 1 < kRows) store_tile<kRow + 1>(tile, sums, place);
}

// The packed values of kRows rows from `row` on, a multiple of kFloatTileRows: of one tile, or of
// two that are multiplied together.
template <int kRows>
struct PackedRows {
  static constexpr int kFirst = kRows < kFloatTileRows ? kRows : kFloatTileRows;
  static constexpr int kSecond = kRows - kFirst;
  const float* first = nullptr;
  const float* second = nullptr;

  // From 32-bit step `begin` on.
  PackedRows(const PanelProduct& p, int row, std::int64_t begin) {
    const std::int64_t row_values = packed_row_bytes(p.activation, p.k) / 4;
    first = static_cast<const float*>(p.tiles) + row * row_values + begin * kFirst;
    second = static_cast<const float*>(p.tiles) + (row + kFirst) * row_values + begin * kSecond;
  }
  // Of 32-bit step begin + `step`.
  const float* at(std::int64_t step, int r) const {
    return r < kFirst ? first + step * kFirst + r : second + step * kSecond + (r - kFirst);
  }
};

// f32 and bf16 panels.
struct FloatPanel {
#if defined(HISPARSE_AVX512)
  // Twelve rows of two vectors are 24 sums: enough for two bf16 products in each cycle, which take
  // six. With 2 weights and 1 input they fit 32 registers.
  static constexpr int kTileRows = 2 * kFloatTileRows;
#else
  // Six rows of two vectors fill the sixteen registers of x86-64-v3: 12 sums, 2 weights, 1 input.
  static constexpr int kTileRows = kFloatTileRows;
#endif
  static constexpr int kTileVectors = 2;
  static constexpr int kWideRows = 2;  // so few rows have room for the whole panel

  template <int kRow = 0, int kRows, int kVectors>
  static inline void add_step(Columns (&tile)[kRows][kVectors], const Columns (&w)[kVectors],
                              const PackedRows<kRows>& in, std::int64_t step) {
    for (int v = 0; v < kVectors; ++v) tile[kRow][v] += *in.at(step, kRow) * w[v];
    if constexpr (kRow + 1 < kRows) add_step<kRow + 1>(tile, w, in, step);
  }
};

struct F32Panel : FloatPanel {
  template <int kRows, int kVectors>
  static inline void add(Columns (&tile)[kRows][kVectors], const PanelProduct& p,
                         const TilePlace& place) {
    const auto* weights = static_cast<const float*>(p.panel) + place.begin * kPanelColumns +
                          place.vector * kColumnLanes;
    const PackedRows<kRows> in(p, place.row, place.begin);
    const std::int64_t steps = place.end - place.begin;
    Columns w[kVectors];
    for (std::int64_t k = 0; k < steps; ++k) {
      for (int v = 0; v < kVectors; ++v) load(w[v], weights + k * kPanelColumns + v * kColumnLanes);
      add_step(tile, w, in, k);
    }
  }
};

// Two neighbours of k lie in one 32-bit lane. The rows of AVX-512's own bf16 products are packed as
// pairs too (kernel_pack.inc.h).
struct BF16Panel : FloatPanel {
  template <int kRows, int kVectors>
  static inline void add(Columns (&tile)[kRows][kVectors], const PanelProduct& p,
                         const TilePlace& place) {
    const auto* pairs = static_cast<const std::uint32_t*>(p.panel) +
                        place.begin / 2 * kPanelColumns + place.vector * kColumnLanes;
    const PackedRows<kRows> in(p, place.row, place.begin / kStepValues);
    const std::int64_t count = (place.end - place.begin + 1) / 2;
    for (std::int64_t pair = 0; pair < count; ++pair) {
      add_pair(tile, pairs + pair * kPanelColumns, in, pair);
    }
  }

#if defined(HISPARSE_AVX512)
  static constexpr std::int64_t kStepValues = 2;

  template <int kRow = 0, int kRows, int kVectors>
  static inline void add_pairs(Columns (&tile)[kRows][kVectors], const ColumnBits (&w)[kVectors],
                               const PackedRows<kRows>& in, std::int64_t step) {
    std::uint32_t x;
    std::memcpy(&x, in.at(step, kRow), sizeof(x));
    for (int v = 0; v < kVectors; ++v) add_bf16_pair(tile[kRow][v], w[v], x);
    if constexpr (kRow + 1 < kRows) add_pairs<kRow + 1>(tile, w, in, step);
  }

  template <int kRows, int kVectors>
  static inline void add_pair(Columns (&tile)[kRows][kVectors], const std::uint32_t* from,
                              const PackedRows<kRows>& in, std::int64_t pair) {
    ColumnBits w[kVectors];
    for (int v = 0; v < kVectors; ++v) load(w[v], from + v * kColumnLanes);
    add_pairs(tile, w, in, pair);
  }
#else
  static constexpr std::int64_t kStepValues = 1;

  template <int kRows, int kVectors>
  static inline void add_pair(Columns (&tile)[kRows][kVectors], const std::uint32_t* from,
                              const PackedRows<kRows>& in, std::int64_t pair) {
    Columns w[kVectors];
    for (int v = 0; v < kVectors; ++v) load_low_halves(w[v], from + v * kColumnLanes);
    add_step(tile, w, in, 2 * pair);
    for (int v = 0; v < kVectors; ++v) load_high_halves(w[v], from + v * kColumnLanes);
    add_step(tile, w, in, 2 * pair + 1);
  }
#endif
};

// Quantised panels: integer sums within a group of k, scaled and added to the accumulators. A row
// of kPlanes planes is as many rows of int8 for the integer sums.
template <Element kElement, int kPlanes>
struct IntPanel {
  static constexpr Activation kActivation = kPlanes == 2 ? Activation::kInt16 : Activation::kInt8;
  static constexpr int kTileRows = kIntTileRows / kPlanes;
  static constexpr int kTileVectors = 2;
  static constexpr int kWideRows = 1;

  // Scales and minima of one group.
  template <int kVectors>
  struct Header {
    Columns scale[kVectors];
    Columns minimum[kVectors];
  };

  template <int kVectors>
  static inline void load_header(Header<kVectors>& header, const std::uint8_t* group, int vector) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(group) + vector * kColumnLanes;
    for (int v = 0; v < kVectors; ++v) {
      load_halves(header.scale[v], halves + v * kColumnLanes);
      if constexpr (kElement == Element::kInt4Min) {
        load_halves(header.minimum[v], halves + kPanelColumns + v * kColumnLanes);
      } else {
        header.minimum[v] = header.scale[v] * static_cast<float>(-kInt4ZeroPoint);
      }
    }
  }

  // The two quads of four-bit weights, or one of eight-bit ones, that lie at `in`.
  static constexpr int kQuadsRead = kElement == Element::kInt8 ? 1 : 2;
  static inline void load_weights(Quads (&w)[kQuadsRead], const std::uint8_t* in) {
    if constexpr (kElement == Element::kInt8) {
      load_quads(w[0], in);
      prepare_int8(w[0]);
    } else {
      Quads nibbles;
      load_quads(nibbles, in);
      split_nibbles(w[0], w[1], nibbles);
    }
  }
  static inline void add_quad(IntSums& sums, const Quads& w, const Quads& x) {
    if constexpr (kElement == Element::kInt8) {
      add_int8(sums, w, x);
    } else {
      add_int4(sums, w, x);
    }
  }

  // in: [kGroupQuads][kRows][4]. What is held in registers meanwhile: the weights of all vectors,
  // or the values of all rows, whichever are fewer.
  template <int kRows, int kVectors>
  static inline void sum_group(IntSums (&sums)[kRows][kVectors], const std::uint8_t* weights,
                               const std::int8_t* in) {
    constexpr int kStride = kPanelColumns * kQuadValues;
    constexpr int kVectorBytes = kColumnLanes * kQuadValues;
    constexpr int kRowsQuad = kRows * kQuadValues;
    constexpr int kSteps = kGroupQuads / kQuadsRead;
    for (int j = 0; j < kSteps; ++j, weights += kStride, in += kRowsQuad) {
      if constexpr (kRows < kVectors) {
        Quads x[kRows][kQuadsRead];
        for (int r = 0; r < kRows; ++r) {
          for (int q = 0; q < kQuadsRead; ++q) {
            repeat_quad(x[r][q], in + q * kSteps * kRowsQuad + r * kQuadValues);
          }
        }
        for (int v = 0; v < kVectors; ++v) {
          Quads w[kQuadsRead];
          load_weights(w, weights + v * kVectorBytes);
          for (int r = 0; r < kRows; ++r) {
            for (int q = 0; q < kQuadsRead; ++q) add_quad(sums[r][v], w[q], x[r][q]);
          }
        }
      } else {
        Quads w[kVectors][kQuadsRead];
        for (int v = 0; v < kVectors; ++v) load_weights(w[v], weights + v * kVectorBytes);
        for (int r = 0; r < kRows; ++r) {
          for (int q = 0; q < kQuadsRead; ++q) {
            Quads x;
            repeat_quad(x, in + q * kSteps * kRowsQuad + r * kQuadValues);
            for (int v = 0; v < kVectors; ++v) add_quad(sums[r][v], w[v][q], x);
          }
        }
      }
    }
  }

  // `plane_sums`: int32 [kRows].
  template <int kRows, int kVectors>
  static inline void start_sums(IntSums (&sums)[kRows][kVectors], const void* plane_sums) {
    for (int r = 0; r < kRows; ++r) {
      std::int32_t sum_of_x;
      std::memcpy(&sum_of_x, static_cast<const std::int32_t*>(plane_sums) + r, sizeof(sum_of_x));
      for (int v = 0; v < kVectors; ++v) {
        if constexpr (kElement == Element::kInt8) {
          start_int8(sums[r][v], sum_of_x);
        } else {
          clear(sums[r][v]);
        }
      }
    }
  }

  template <int kRows, int kVectors>
  static inline void add(Columns (&tile)[kRows][kVectors], const PanelProduct& p,
                         const TilePlace& place) {
    constexpr std::int64_t kRowGroup = packed_row_bytes(kActivation, kGroupValues);
    const auto* group = static_cast<const std::uint8_t*>(p.panel) +
                        place.begin / kGroupValues * group_bytes(kElement);
    const auto* in = static_cast<const std::int8_t*>(p.tiles) +
                     place.row * packed_row_bytes(kActivation, p.k) +
                     place.begin / kGroupValues * kRowGroup * kRows;
    for (std::int64_t k = place.begin; k < place.end; k += kGroupValues) {
      fetch_ahead<kRows, group_bytes(kElement)>(group);
      IntSums sums[kRows * kPlanes][kVectors];
      const auto* row_scales = reinterpret_cast<const float*>(in + kRows * kPlanes * kGroupValues);
      start_sums(sums, row_scales + 2 * kRows);
      sum_group(sums,
                group + group_header_bytes(kElement) + place.vector * kColumnLanes * kQuadValues,
                in);
      scale_group<kRows>(tile, sums, group, place.vector, row_scales);
      group += group_bytes(kElement);
      in += kRowGroup * kRows;
    }
  }

  static inline void to_columns(Columns& out, const IntSums& sums) {
    if constexpr (kElement == Element::kInt8) {
      int8_to_float(out, sums);
    } else {
      int4_to_float(out, sums);
    }
  }

  // tile += sums * scale of the row * scale of the column + sum of the row * minimum of the column.
  template <int kRows, int kVectors>
  static inline void scale_group(Columns (&tile)[kRows][kVectors],
                                 const IntSums (&sums)[kRows * kPlanes][kVectors],
                                 const std::uint8_t* group, int vector, const float* row_scales) {
    Header<kVectors> header;
    load_header(header, group, vector);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        Columns value;
        to_columns(value, sums[r * kPlanes][v]);
        if constexpr (kPlanes == 2) {
          Columns low;
          to_columns(low, sums[r * kPlanes + 1][v]);
          value = value * static_cast<float>(kPlaneBase) + low;
        }
        value = value * row_scales[r];
        tile[r][v] += value * header.scale[v];
        if constexpr (kElement != Element::kInt8) {
          tile[r][v] += row_scales[kRows + r] * header.minimum[v];
        }
      }
    }
  }
};

template <typename Panel, int kRows, int kVectors>
void multiply_tile(const PanelProduct& p, const TilePlace& place, RowSums* sums) {
  Columns tile[kRows][kVectors];
  load_tile(tile, sums, place);
  Panel::template add<kRows, kVectors>(tile, p, place);
  store_tile(tile, sums, place);
}

// A tile of kRows rows, or of as many as there are.
template <typename Panel, int kRows, int kVectors>
inline void multiply_rows(const PanelProduct& p, const TilePlace& place, RowSums* sums) {
  if constexpr (kRows > 1) {
    if (p.rows - place.row < kRows) {
      return multiply_rows<Panel, kRows - 1, kVectors>(p, place, sums);
    }
  }
  multiply_tile<Panel, kRows, kVectors>(p, place, sums);
}

template <typename Panel>
inline void multiply(const PanelProduct& p, const PartOfK& part, RowSums* sums) {
  const TilePlace whole = {.begin = part.begin, .end = part.end};
  if (p.rows == 1) return multiply_tile<Panel, 1, kPanelVectors>(p, whole, sums);
  if (p.rows == 2 && Panel::kWideRows == 2) {
    return multiply_tile<Panel, 2, kPanelVectors>(p, whole, sums);
  }
  for (std::int64_t begin = part.begin; begin < part.end; begin += kBlockSteps) {
    const std::int64_t end = begin + kBlockSteps < part.end ? begin + kBlockSteps : part.end;
    for (int vector = 0; vector < kPanelVectors; vector += Panel::kTileVectors) {
      if (vector * kColumnLanes >= p.columns) break;
      for (int row = 0; row < p.rows; row += Panel::kTileRows) {
        multiply_rows<Panel, Panel::kTileRows, Panel::kTileVectors>(
            p, {.begin = begin, .end = end, .row = row, .vector = vector}, sums);
      }
    }
  }
}

template <Element kElement>
inline void multiply_quantised(const PanelProduct& p, const PartOfK& part, RowSums* sums) {
  if (p.activation == Activation::kInt16) {
    multiply<IntPanel<kElement, 2>>(p, part, sums);
  } else {
    multiply<IntPanel<kElement, 1>>(p, part, sums);
  }
}

inline void write_row(const float* sums, float* out, int columns, ProductResult result) {
  if (result == ProductResult::kAdd) {
    for (int c = 0; c < columns; ++c) out[c] += sums[c];
  } else {
    for (int c = 0; c < columns; ++c) out[c] = sums[c];
  }
}

void multiply_panel(const PanelProduct& p) {
  alignas(sizeof(Columns)) RowSums all_of_k[kMaxProductRows];
  const PartOfK part = p.part != nullptr ? *p.part : PartOfK{.end = p.k, .sums = all_of_k[0]};
  auto* sums = reinterpret_cast<RowSums*>(part.sums);
  switch (p.element) {
    case Element::kF32:
      multiply<F32Panel>(p, part, sums);
      break;
    case Element::kBF16:
      multiply<BF16Panel>(p, part, sums);
      break;
    case Element::kInt8:
      multiply_quantised<Element::kInt8>(p, part, sums);
      break;
    case Element::kInt4:
      multiply_quantised<Element::kInt4>(p, part, sums);
      break;
    case Element::kInt4Min:
      multiply_quantised<Element::kInt4Min>(p, part, sums);
      break;
  }
  if (part.end < p.k) return;
  for (int r = 0; r < p.rows; ++r) {
    write_row(sums[r], p.out + r * p.out_stride, p.columns, p.result);
  }
}
