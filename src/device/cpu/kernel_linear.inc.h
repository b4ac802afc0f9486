// The matrix product. Every output element is one f32 accumulator over k in rising order; all tile
// sizes are instances of one body, so the number of rows does not change the bits.

// k steps whose weights stay in the L2 cache while the rows pass. Between blocks the accumulators
// rest in `out`, which loses nothing.
constexpr std::int64_t kBlockSteps = 512;
constexpr int kPanelVectors = kPanelColumns / kLanes;

struct TilePlace {
  std::int64_t row = 0;
  std::int64_t begin = 0;  // of k
  std::int64_t end = 0;
  int vector = 0;  // first vector of the panel
};

inline std::int64_t valid_lanes(int columns, int vector) {
  const int rest = columns - vector * kLanes;
  return rest > kLanes ? kLanes : rest < 0 ? 0 : rest;
}

template <int kRows, int kVectors>
inline void load_tile(F8 (&sums)[kRows][kVectors], const PanelProduct& p, const TilePlace& place) {
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      const float* from = p.out + (place.row + r) * p.out_stride + (place.vector + v) * kLanes;
      const std::int64_t valid = valid_lanes(p.columns, place.vector + v);
      if (place.begin == 0 || valid == 0) {
        sums[r][v] = F8{};
      } else if (valid == kLanes) {
        load(sums[r][v], from);
      } else {
        load_partial(sums[r][v], from, valid);
      }
    }
  }
}

template <int kRows, int kVectors>
inline void store_tile(const F8 (&sums)[kRows][kVectors], const PanelProduct& p,
                       const TilePlace& place) {
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* to = p.out + (place.row + r) * p.out_stride + (place.vector + v) * kLanes;
      const std::int64_t valid = valid_lanes(p.columns, place.vector + v);
      if (valid == kLanes) {
        store(to, sums[r][v]);
      } else {
        store_partial(to, sums[r][v], valid);
      }
    }
  }
}

template <typename T, int kRows, int kVectors>
void multiply_tile(const PanelProduct& p, const TilePlace& place) {
  F8 sums[kRows][kVectors];
  load_tile(sums, p, place);
  const T* weights = static_cast<const T*>(p.panel) + place.vector * kLanes;
  const float* in[kRows];
  for (int r = 0; r < kRows; ++r) in[r] = p.in + (place.row + r) * p.k;
  for (std::int64_t k = place.begin; k < place.end; ++k) {
    F8 step[kVectors];
    for (int v = 0; v < kVectors; ++v) load(step[v], weights + k * kPanelColumns + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sums[r][v] += in[r][k] * step[v];
    }
  }
  store_tile(sums, p, place);
}

// Six rows of two vectors fill the sixteen registers of x86-64-v3: 12 sums, 2 weights, 1 input.
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
// Fewer rows have room for the whole panel.
constexpr std::int64_t kWideTileRows = 2;

template <typename T>
inline void multiply_few_rows(const PanelProduct& p, const TilePlace& place, std::int64_t rows) {
  switch (rows) {
    case 1:
      return multiply_tile<T, 1, kTileVectors>(p, place);
    case 2:
      return multiply_tile<T, 2, kTileVectors>(p, place);
    case 3:
      return multiply_tile<T, 3, kTileVectors>(p, place);
    case 4:
      return multiply_tile<T, 4, kTileVectors>(p, place);
    case 5:
      return multiply_tile<T, 5, kTileVectors>(p, place);
    default:
      return multiply_tile<T, kTileRows, kTileVectors>(p, place);
  }
}

template <typename T>
inline void multiply_wide(const PanelProduct& p) {
  const TilePlace place = {.row = 0, .begin = 0, .end = p.k, .vector = 0};
  if (p.rows == 1) {
    multiply_tile<T, 1, kPanelVectors>(p, place);
  } else {
    multiply_tile<T, 2, kPanelVectors>(p, place);
  }
}

template <typename T>
inline void multiply_blocked(const PanelProduct& p) {
  for (std::int64_t begin = 0; begin < p.k; begin += kBlockSteps) {
    const std::int64_t end = begin + kBlockSteps < p.k ? begin + kBlockSteps : p.k;
    for (int vector = 0; vector < kPanelVectors; vector += kTileVectors) {
      if (vector * kLanes >= p.columns) break;
      for (std::int64_t row = 0; row < p.rows; row += kTileRows) {
        const TilePlace place = {.row = row, .begin = begin, .end = end, .vector = vector};
        multiply_few_rows<T>(p, place, p.rows - row);
      }
    }
  }
}

template <typename T>
inline void multiply(const PanelProduct& p) {
  if (p.rows <= kWideTileRows) {
    multiply_wide<T>(p);
  } else {
    multiply_blocked<T>(p);
  }
}

void multiply_panel(const PanelProduct& product) {
  if (product.element == Element::kBF16) {
    multiply<std::uint16_t>(product);
  } else {
    multiply<float>(product);
  }
}

void round_to_bf16(const float* in, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = base::to_float(base::to_bf16(in[i]));
}
