// Causal convolution and Mamba's selective scan: a row's tokens in order, its channels side by side.
// Channels never meet, and a row is one thread's for all its tokens: how work is divided does not change results.
#include <algorithm>
#include <memory>

#include "state_args_conv.h"
#include "vec.h"

namespace gb {
namespace {

constexpr int kMaxWidth = 8;
// Channels of a piece of work: of the convolution (a cache's worth of lines), and of the scan (two vectors).
constexpr int kConvTile = 128;
constexpr int kScanTile = 2 * kLanes;
// Tokens for which one piece of work is big enough; shorter rows are taken together.
constexpr int64_t kConvTokens = 8;
constexpr int64_t kScanTokens = 16;
// Elements below which one thread is quicker than starting a second.
constexpr int64_t kWorthConv = 1 << 14;
constexpr int64_t kWorthScan = 1 << 15;

// A row's tiles stay together where there are rows enough: its state is then read from end to end.
int64_t tiles_together(int64_t num_groups, int64_t tiles, int64_t threads) {
  return std::clamp<int64_t>(num_groups * tiles / (8 * threads), 1, tiles);
}

// Zero what no row covers: tokens of padding.
void clear_rest(const StateRowsArgs& r, int64_t total_tokens, int64_t dim, float* out) {
  const int64_t first = r.num_rows ? r.query_start_loc[0] : total_tokens;
  const int64_t last = r.num_rows ? r.query_start_loc[r.num_rows] : total_tokens;
  // Without tokens there is no output to point to.
  if (first) std::memset(out, 0, first * dim * sizeof(float));
  if (last < total_tokens) std::memset(out + last * dim, 0, (total_tokens - last) * dim * sizeof(float));
}

// One row, channels `first` to `first + count`. `taps` is [width][padded dim], with the bias behind.
template <int kWidth>
void convolve(const ConvArgs& a, const float* taps, int64_t padded, int64_t row, int64_t first, int count) {
  const StateRowsArgs& r = a.rows;
  constexpr int kKept = kWidth - 1;
  const int64_t start = r.query_start_loc[row];
  float before[kMaxWidth][kConvTile];
  if (r.initial_state[row]) {
    const float* state = a.state + r.initial_state[row] * a.state_block + first;
    for (int i = 0; i < kKept; ++i) std::memcpy(before[i], state + i * a.state_place, count * sizeof(float));
  } else {
    for (int i = 0; i < kKept; ++i) std::memset(before[i], 0, count * sizeof(float));
  }
  // The row's input at `place`, which is negative before its first token.
  const float* const zeroth = before[0] + kKept * kConvTile;
  const auto input = [&](int64_t place) {
    return place < 0 ? zeroth + place * kConvTile : a.x + (start + place) * a.x_token + first;
  };
  const float* bias = taps + kWidth * padded + first;
  for (int64_t chunk = r.row_chunks[row]; chunk < r.row_chunks[row + 1]; ++chunk) {
    const int64_t end = r.chunk_start_loc[chunk + 1] - start;
    for (int64_t place = r.chunk_start_loc[chunk] - start; place < end; ++place) {
      const float* window[kWidth];
      for (int i = 0; i < kWidth; ++i) window[i] = input(place - kKept + i);
      float* out = a.out + (start + place) * a.dim + first;
      const auto at = [&](int d, auto read) {
        vf sum = read(window[0] + d) * load(taps + first + d);
        for (int i = 1; i < kWidth; ++i) sum += read(window[i] + d) * load(taps + i * padded + first + d);
        sum += load(bias + d);
        return a.silu ? sum / (splat(1.0f) + exp(-sum)) : sum;
      };
      int d = 0;
      for (; d + kLanes <= count; d += kLanes) store(out + d, at(d, [](const float* p) { return load(p); }));
      if (d < count) {
        const int rest = count - d;
        store_part<Float32>(out + d, at(d, [rest](const float* p) { return load_part<Float32>(p, rest); }), rest);
      }
    }
    if (!r.chunk_state[chunk]) continue;
    float* state = a.state + r.chunk_state[chunk] * a.state_block + first;
    for (int i = 0; i < kKept; ++i)
      std::memcpy(state + i * a.state_place, input(end - kKept + i), count * sizeof(float));
  }
}

template <int kWidth>
void convolve_all(const ConvArgs& a) {
  const int64_t padded = round_up(a.dim, kLanes);
  std::unique_ptr<float[]> taps(new float[(kWidth + 1) * padded]());
  for (int64_t d = 0; d < a.dim; ++d) {
    for (int i = 0; i < kWidth; ++i) taps[i * padded + d] = a.weight[d * a.weight_channel + i];
    if (a.bias) taps[kWidth * padded + d] = a.bias[d];
  }
  const std::vector<int64_t> groups = group_rows(a.rows, kConvTokens);
  const int64_t num_groups = groups.size() - 1, tiles = (a.dim + kConvTile - 1) / kConvTile;
  const int64_t span = tiles_together(num_groups, tiles, a.threads), spans = (tiles + span - 1) / span;
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)a.threads) if (a.rows.num_tokens * a.dim > kWorthConv)
  for (int64_t piece = 0; piece < num_groups * spans; ++piece) {
    const int64_t group = piece / spans, first = piece % spans * span, last = std::min(first + span, tiles);
    for (int64_t row = groups[group]; row < groups[group + 1]; ++row)
      for (int64_t tile = first; tile < last; ++tile)
        convolve<kWidth>(a, taps.get(), padded, row, tile * kConvTile,
                         (int)std::min<int64_t>(kConvTile, a.dim - tile * kConvTile));
  }
}

void causal_conv(const ConvArgs& a) {
  switch (a.width) {
    case 1: return convolve_all<1>(a);
    case 2: return convolve_all<2>(a);
    case 3: return convolve_all<3>(a);
    case 4: return convolve_all<4>(a);
    case 5: return convolve_all<5>(a);
    case 6: return convolve_all<6>(a);
    case 7: return convolve_all<7>(a);
    default: return convolve_all<8>(a);
  }
}

// Up to kScanTile channels' vectors [channel][state_size] as [state_size, rounded up][kScanTile], zeros in the gaps.
void read_states(const float* from, int64_t channel_stride, int count, int state_size, float* to) {
  for (int half = 0; half < kScanTile; half += kLanes)
    for (int s = 0; s < state_size; s += kLanes) {
      vf block[kLanes];
      for (int i = 0; i < kLanes; ++i)
        block[i] = half + i < count ? load_some<Float32>(from + (half + i) * channel_stride + s, state_size - s) : vf{};
      transpose8(block);
      for (int i = 0; i < kLanes; ++i) store(to + (s + i) * kScanTile + half, block[i]);
    }
}

void write_states(const float* from, float* to, int64_t channel_stride, int count, int state_size) {
  for (int half = 0; half < count; half += kLanes)
    for (int s = 0; s < state_size; s += kLanes) {
      vf block[kLanes];
      for (int i = 0; i < kLanes; ++i) block[i] = load(from + (s + i) * kScanTile + half);
      transpose8(block);
      for (int i = 0; i < kLanes && half + i < count; ++i)
        store_some<Float32>(to + (half + i) * channel_stride + s, block[i], state_size - s);
    }
}

// One token of kScanTile channels: `h` and `decay` are [state_size][kScanTile].
GB_INLINE void step(const float* decay, float* h, const float* b, const float* c, int state_size, const vf dt[2],
                    const vf x[2], vf out[2]) {
  const vf drive0 = dt[0] * x[0], drive1 = dt[1] * x[1];
  for (int s = 0; s < state_size; ++s) {
    const float* from = decay + s * kScanTile;
    float* kept = h + s * kScanTile;
    const vf in = splat(b[s]), seen = splat(c[s]);
    const vf h0 = exp(dt[0] * load(from)) * load(kept) + drive0 * in;
    const vf h1 = exp(dt[1] * load(from + kLanes)) * load(kept + kLanes) + drive1 * in;
    store(kept, h0);
    store(kept + kLanes, h1);
    out[0] += h0 * seen;
    out[1] += h1 * seen;
  }
}

// One row, channels `first` to `first + count`.
void scan(const SelectiveArgs& a, const float* decay, int64_t row, int64_t first, int count, float* h) {
  const StateRowsArgs& r = a.rows;
  const int size = (int)a.state_size;
  if (r.row_chunks[row] == r.row_chunks[row + 1]) return;
  if (r.initial_state[row])
    read_states(a.state + r.initial_state[row] * a.state_block + first * a.state_channel, a.state_channel, count, size,
                h);
  else
    std::memset(h, 0, round_up(size, kLanes) * kScanTile * sizeof(float));
  const int rest = count - kLanes;
  vf skip[2] = {};
  if (a.d) {
    skip[0] = load_some<Float32>(a.d + first, count);
    if (rest > 0) skip[1] = load_some<Float32>(a.d + first + kLanes, rest);
  }
  for (int64_t chunk = r.row_chunks[row]; chunk < r.row_chunks[row + 1]; ++chunk) {
    for (int64_t token = r.chunk_start_loc[chunk]; token < r.chunk_start_loc[chunk + 1]; ++token) {
      const float* x = a.x + token * a.x_token + first;
      const float* dt = a.dt + token * a.dt_token + first;
      float* out = a.out + token * a.dim + first;
      const vf inputs[2] = {load_some<Float32>(x, count), rest > 0 ? load_some<Float32>(x + kLanes, rest) : vf{}};
      const vf widths[2] = {load_some<Float32>(dt, count), rest > 0 ? load_some<Float32>(dt + kLanes, rest) : vf{}};
      vf sums[2] = {};
      step(decay, h, a.b + token * a.b_token, a.c + token * a.c_token, size, widths, inputs, sums);
      store_some<Float32>(out, sums[0] + skip[0] * inputs[0], count);
      if (rest > 0) store_some<Float32>(out + kLanes, sums[1] + skip[1] * inputs[1], rest);
    }
    if (r.chunk_state[chunk])
      write_states(h, a.state + r.chunk_state[chunk] * a.state_block + first * a.state_channel, a.state_channel, count,
                   size);
  }
}

void selective_scan(const SelectiveArgs& a) {
  const int size = (int)a.state_size;
  const int64_t floats = round_up(size, kLanes) * kScanTile, tiles = (a.dim + kScanTile - 1) / kScanTile;
  const std::vector<int64_t> groups = group_rows(a.rows, kScanTokens);
  const int64_t num_groups = groups.size() - 1;
  const int64_t span = tiles_together(num_groups, tiles, a.threads), spans = (tiles + span - 1) / span;
  std::unique_ptr<float[]> decay(new float[tiles * floats]);
  const auto channels = [&](int64_t tile) { return (int)std::min<int64_t>(kScanTile, a.dim - tile * kScanTile); };
#pragma omp parallel num_threads((int)a.threads) if (a.rows.num_tokens * a.dim * size > kWorthScan)
  {
    std::unique_ptr<float[]> h(new float[floats]);
#pragma omp for schedule(static)
    for (int64_t tile = 0; tile < tiles; ++tile)
      read_states(a.a + tile * kScanTile * a.a_channel, a.a_channel, channels(tile), size, &decay[tile * floats]);
#pragma omp for schedule(dynamic, 1)
    for (int64_t piece = 0; piece < num_groups * spans; ++piece) {
      const int64_t group = piece / spans, first = piece % spans * span, last = std::min(first + span, tiles);
      for (int64_t row = groups[group]; row < groups[group + 1]; ++row)
        for (int64_t tile = first; tile < last; ++tile)
          scan(a, &decay[tile * floats], row, tile * kScanTile, channels(tile), h.get());
    }
  }
}

}  // namespace
}  // namespace gb

extern "C" int64_t gb_causal_conv(const gb::ConvArgs* args) {
  const int64_t fault = gb::check_rows(args->rows);
  if (fault) return fault;
  gb::clear_rest(args->rows, args->total_tokens, args->dim, args->out);
  gb::causal_conv(*args);
  return 0;
}

extern "C" int64_t gb_selective_scan(const gb::SelectiveArgs* args) {
  const int64_t fault = gb::check_rows(args->rows);
  if (fault) return fault;
  gb::clear_rest(args->rows, args->total_tokens, args->dim, args->out);
  gb::selective_scan(*args);
  return 0;
}
