// Norm, gate, maximum and softmax weights.

void rms_norm(const float* in, const float* weight, float* out, std::int64_t width, float epsilon) {
  F8 sums[2] = {};
  std::int64_t i = 0;
  F8 x, w;
  for (; i + 2 * kLanes <= width; i += 2 * kLanes) {
    load(x, in + i);
    sums[0] += x * x;
    load(x, in + i + kLanes);
    sums[1] += x * x;
  }
  for (; i < width; i += kLanes) {
    if (i + kLanes <= width) {
      load(x, in + i);
    } else {
      load_partial(x, in + i, width - i);
    }
    sums[0] += x * x;
  }
  sums[0] += sums[1];
  const float mean = sum_lanes(sums[0]) / static_cast<float>(width);
  const float scale = 1.0f / __builtin_sqrtf(mean + epsilon);
  for (i = 0; i + kLanes <= width; i += kLanes) {
    load(x, in + i);
    load(w, weight + i);
    x = w * (x * scale);
    store(out + i, x);
  }
  for (; i < width; ++i) out[i] = weight[i] * (in[i] * scale);
}

inline void silu_mul_lanes(Wide& gate, const Wide& up) {
  Wide power = -gate;
  exp_of(power);
  gate = gate / (1.0f + power) * up;
}

void silu_mul(const float* gate, const float* up, float* out, std::int64_t count) {
  std::int64_t i = 0;
  Wide g, u;
  for (; i + kWideLanes <= count; i += kWideLanes) {
    load(g, gate + i);
    load(u, up + i);
    silu_mul_lanes(g, u);
    store(out + i, g);
  }
  if (i == count) return;
  load_partial(g, gate + i, count - i);
  load_partial(u, up + i, count - i);
  silu_mul_lanes(g, u);
  store_partial(out + i, g, count - i);
}

inline float largest(const float* in, std::int64_t count) {
  F8 lanes, x;
  splat(lanes, -__builtin_inff());
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    load(x, in + i);
    max_lanes(lanes, x);
  }
  float max = largest_lane(lanes);
  for (; i < count; ++i) max = in[i] > max ? in[i] : max;
  return max;
}

std::int64_t index_of_max(const float* in, std::int64_t count) {
  const float max = largest(in, count);
  if (max == -__builtin_inff()) return 0;
  std::int64_t i = 0;
  while (in[i] != max) ++i;
  return i;
}

inline void softmax_weight8(F8& x, float max, float inverse_temperature) {
  const F8 zero = {};
  F8 power = (x - max) * inverse_temperature;
  exp_of(power);
  x = x == x ? power : zero;
}

void softmax_weights(const float* in, float* out, std::int64_t count, float max,
                     float inverse_temperature) {
  std::int64_t i = 0;
  F8 x;
  for (; i + kLanes <= count; i += kLanes) {
    load(x, in + i);
    softmax_weight8(x, max, inverse_temperature);
    store(out + i, x);
  }
  if (i == count) return;
  load_partial(x, in + i, count - i);
  softmax_weight8(x, max, inverse_temperature);
  store_partial(out + i, x, count - i);
}
