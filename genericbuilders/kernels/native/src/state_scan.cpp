// The decaying scan (Mamba-2, lightning attention) and the gated delta rule.
//
// A step takes up to eight tokens through the state at once. With h the state before them, decay(s, t) the product of
// the decays after token s up to t, and decay(t) that of all up to t, the recurrence written out is
//   u[t] = beta[t] (v[t] - decay(t) h k[t] - sum over s < t of decay(s, t) (k[s] . k[t]) u[s]), or v[t] without beta
//   out[t] = decay(t) h q[t] + sum over s <= t of decay(s, t) (k[s] . q[t]) u[s]
//   h = decay(last) h + sum over s of decay(s, last) u[s] (x) k[s]
// so that every element of the state is read and written once a step. Products of decays, at most 1, never overflow.
//
// Values never meet, and a row's tokens are always cut alike: how work is divided does not change results.
#include <algorithm>
#include <cmath>
#include <memory>

#include "state_args_scan.h"
#include "vec.h"

namespace gb {
namespace {

// Multiplications below which one thread is quicker than starting a second.
constexpr int64_t kWorthScan = 1 << 16;
// Values of a piece of work, at least.
constexpr int64_t kTile = 16;

// Rows of a state, `stride` apart.
struct Rows {
  float* first;
  int64_t stride;
};

// One piece of work: values `first` to `first + count` of a head.
struct Piece {
  int64_t head, first;
  int count;
};

// A row of the state by the vectors of kTokens tokens: the products, not yet summed.
template <int kTokens>
GB_INLINE void project(const float* h, const float* const* vectors, int size, vf* products) {
  vf total[kTokens] = {};
  int d = 0;
  for (; d + kLanes <= size; d += kLanes) {
    const vf kept = load(h + d);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) total[t] += kept * load(vectors[t] + d);
  }
  if (d < size) {
    const vf kept = load_part<Float32>(h + d, size - d);
    for (int t = 0; t < kTokens; ++t) total[t] += kept * load_part<Float32>(vectors[t] + d, size - d);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) products[t * kLanes] = total[t];
}

// Eight vectors' sums, side by side.
GB_INLINE vf sums(vf* rows) {
#if defined(__AVX__)
  __m256 pairs[4], fours[2];
  for (int i = 0; i < 4; ++i) {
    const __m256 even = (__m256)rows[2 * i], odd = (__m256)rows[2 * i + 1];
    pairs[i] = _mm256_add_ps(_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd));
  }
  for (int i = 0; i < 2; ++i)
    fours[i] = _mm256_add_ps(_mm256_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], 0xee));
  return (vf)_mm256_add_ps(_mm256_permute2f128_ps(fours[0], fours[1], 0x20),
                           _mm256_permute2f128_ps(fours[0], fours[1], 0x31));
#else
  transpose8(rows);
  return ((rows[0] + rows[4]) + (rows[1] + rows[5])) + ((rows[2] + rows[6]) + (rows[3] + rows[7]));
#endif
}

// Rows by the vectors of kTokens tokens: products[t] has a lane for each row, 0 behind the last.
template <int kTokens>
GB_INLINE void project_all(const float* const* rows, int num_rows, const float* const* vectors, int size,
                           vf* products) {
  vf parts[kTokens * kLanes];
  for (int row = 0; row < num_rows; ++row) project<kTokens>(rows[row], vectors, size, parts + row);
  for (int row = num_rows; row < kLanes; ++row)
    for (int t = 0; t < kTokens; ++t) parts[t * kLanes + row] = vf{};
  for (int t = 0; t < kTokens; ++t) products[t] = sums(parts + t * kLanes);
}

// One row of the state onwards: `weights` are [kTokens][kLanes], of which this row's are the first.
template <int kTokens>
GB_INLINE void advance(const float* from, float* to, float decay, const float* weights, const float* const* keys,
                       int size) {
  vf weight[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) weight[t] = splat(weights[t * kLanes]);
  const vf kept = splat(decay);
  int d = 0;
  for (; d + kLanes <= size; d += kLanes) {
    vf h = kept * load(from + d);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) h += weight[t] * load(keys[t] + d);
    store(to + d, h);
  }
  if (d < size) {
    vf h = kept * load_part<Float32>(from + d, size - d);
    for (int t = 0; t < kTokens; ++t) h += weight[t] * load_part<Float32>(keys[t] + d, size - d);
    store_part<Float32>(to + d, h, size - d);
  }
}

// Tokens `token` to `token + kTokens` of a piece; `from` and `to` may be the same.
template <bool kDelta, int kTokens>
void step(const ScanArgs& a, const Piece& p, int64_t token, Rows from, Rows to) {
  const int size = (int)a.key_size;
  const int64_t group = p.head / (a.num_heads / a.num_groups);
  const float *queries[kTokens], *keys[kTokens];
  // For each t a lane for each s < t (of query_key, s <= t): the vectors' product times decay(s, t).
  vf query_key[kTokens], key_key[kTokens];
  // decay(t), and in its lanes decay(s, t), at the end decay(s, last).
  float whole[kTokens], beta[kTokens];
  vf last = {};
  for (int t = 0; t < kTokens; ++t) {
    queries[t] = a.query + (token + t) * a.query_token + group * a.query_group;
    keys[t] = a.key + (token + t) * a.key_token + group * a.key_group;
  }
  project_all<kTokens>(keys, kTokens, queries, size, query_key);
  if (kDelta) project_all<kTokens>(keys, kTokens, keys, size, key_key);
  for (int t = 0; t < kTokens; ++t) {
    if (kDelta) beta[t] = a.beta[(token + t) * a.beta_token + p.head * a.beta_head];
    const float decay = std::exp(a.log_decay[(token + t) * a.log_decay_token + p.head * a.log_decay_head]);
    whole[t] = t ? whole[t - 1] * decay : decay;
    last *= splat(decay);
    last[t] = 1.0f;
    query_key[t] *= last;
    if (kDelta) key_key[t] *= last;
  }
  for (int64_t first = 0; first < p.count; first += kLanes) {
    const int n = (int)std::min<int64_t>(kLanes, p.count - first);
    const float* h[kLanes];
    for (int row = 0; row < n; ++row) h[row] = from.first + (first + row) * from.stride;
    vf by_query[kTokens], by_key[kTokens];
    project_all<kTokens>(h, n, queries, size, by_query);
    if (kDelta) project_all<kTokens>(h, n, keys, size, by_key);
    vf u[kTokens];
    float weights[kTokens * kLanes];
    const int64_t place = p.first + first;
    for (int t = 0; t < kTokens; ++t) {
      u[t] = load_some<Float32>(a.value + (token + t) * a.value_token + p.head * a.value_head + place, n);
      if (kDelta) {
        u[t] -= splat(whole[t]) * by_key[t];
        for (int s = 0; s < t; ++s) u[t] -= splat(key_key[t][s]) * u[s];
        u[t] *= splat(beta[t]);
      }
      vf out = splat(whole[t]) * by_query[t];
      for (int s = 0; s <= t; ++s) out += splat(query_key[t][s]) * u[s];
      store_some<Float32>(a.out + ((token + t) * a.num_heads + p.head) * a.value_size + place, out, n);
      store(weights + t * kLanes, splat(last[t]) * u[t]);
    }
    for (int row = 0; row < n; ++row)
      advance<kTokens>(h[row], to.first + (first + row) * to.stride, whole[kTokens - 1], weights + row, keys, size);
  }
}

// As many tokens as fit; how many were taken.
template <bool kDelta>
int64_t some_tokens(const ScanArgs& a, const Piece& p, int64_t token, int64_t count, Rows from, Rows to) {
  if (count >= 8) return step<kDelta, 8>(a, p, token, from, to), 8;
  if (count >= 4) return step<kDelta, 4>(a, p, token, from, to), 4;
  if (count >= 2) return step<kDelta, 2>(a, p, token, from, to), 2;
  return step<kDelta, 1>(a, p, token, from, to), 1;
}

// One row. The state is read where it lies, and kept in `scratch` between steps; `zeros` is one row of it.
template <bool kDelta>
void scan_row(const ScanArgs& a, int64_t row, const Piece& p, float* zeros, float* scratch) {
  const StateRowsArgs& r = a.rows;
  const auto block = [&](int64_t index) {
    return Rows{a.state + index * a.state_block + p.head * a.state_head + p.first * a.state_value, a.state_value};
  };
  Rows now = r.initial_state[row] ? block(r.initial_state[row]) : Rows{zeros, 0};
  for (int64_t chunk = r.row_chunks[row]; chunk < r.row_chunks[row + 1]; ++chunk) {
    const int64_t end = r.chunk_start_loc[chunk + 1];
    const Rows store = r.chunk_state[chunk] ? block(r.chunk_state[chunk]) : Rows{scratch, a.key_size};
    for (int64_t token = r.chunk_start_loc[chunk]; token < end;) {
      const int64_t left = end - token;
      // Powers of two: the last step of a chunk is the one that uses up what is left.
      const bool is_last = left == 8 || left == 4 || left == 2 || left == 1;
      const Rows to = is_last ? store : Rows{scratch, a.key_size};
      token += some_tokens<kDelta>(a, p, token, left, now, to);
      now = to;
    }
    if (r.chunk_start_loc[chunk] == end && now.first != store.first) {
      for (int64_t v = 0; v < p.count; ++v)
        std::memcpy(store.first + v * store.stride, now.first + v * now.stride, a.key_size * sizeof(float));
      now = store;
    }
  }
}

template <bool kDelta>
int64_t scan(const ScanArgs& a) {
  const StateRowsArgs& r = a.rows;
  const int64_t fault = check_rows(r);
  if (fault) return fault;
  const int64_t width = a.num_heads * a.value_size;
  const int64_t start = r.num_rows ? r.query_start_loc[0] : a.total_tokens;
  const int64_t stop = r.num_rows ? r.query_start_loc[r.num_rows] : a.total_tokens;
  std::memset(a.out, 0, start * width * sizeof(float));
  std::memset(a.out + stop * width, 0, (a.total_tokens - stop) * width * sizeof(float));
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < r.num_rows; ++row)
    if (r.row_chunks[row] < r.row_chunks[row + 1]) rows.push_back(row);
  // A long row's values are divided where its heads alone would leave a thread idle.
  int64_t tile = round_up(a.value_size, kLanes);
  while (a.threads > 1 && tile > kTile && (int64_t)rows.size() * a.num_heads * tile < 4 * a.threads * a.value_size)
    tile = round_up(tile / 2, kLanes);
  const int64_t tiles = (a.value_size + tile - 1) / tile, pieces = (int64_t)rows.size() * a.num_heads * tiles;
#pragma omp parallel num_threads((int)a.threads) if (r.num_tokens * width * a.key_size > kWorthScan)
  {
    std::unique_ptr<float[]> zeros(new float[a.key_size]()), scratch(new float[tile * a.key_size]);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t first = i % tiles * tile;
      const Piece piece{i / tiles % a.num_heads, first, (int)std::min(tile, a.value_size - first)};
      scan_row<kDelta>(a, rows[i / tiles / a.num_heads], piece, zeros.get(), scratch.get());
    }
  }
  return 0;
}

}  // namespace
}  // namespace gb

extern "C" int64_t gb_decay_scan(const gb::ScanArgs* args) { return gb::scan<false>(*args); }
extern "C" int64_t gb_delta_scan(const gb::ScanArgs* args) { return gb::scan<true>(*args); }
