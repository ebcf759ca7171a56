// Several new tokens per request: tiles of queries against tiles of keys with a running softmax
// (FlashAttention, Dao et al. 2022). Tiles of keys start at multiples of kKeyTile; a tile that a row does not see
// leaves it unchanged, so that a row's result does not depend on its neighbours.
#pragma once

#include "decode.h"

namespace gb {

constexpr int kKeyTile = 64;
constexpr int kPanel = 16;     // columns that the inner product computes together
constexpr int kTileRows = 96;  // query rows (tokens times heads of a group) in one tile

// c[m][0..16) = (or +=) sum over k of a[m][k] * b[k][0..16)
template <int M>
GB_INLINE void product_rows(const float* a, int64_t a_row, const float* b, int64_t depth, float* c, int64_t c_row,
                            bool add) {
  vf acc[M][2];
  for (int m = 0; m < M; ++m) {
    acc[m][0] = add ? load(c + m * c_row) : vf{};
    acc[m][1] = add ? load(c + m * c_row + kLanes) : vf{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    vf b0 = load(b + k * kPanel), b1 = load(b + k * kPanel + kLanes);
    for (int m = 0; m < M; ++m) {
      vf x = splat(a[m * a_row + k]);
      acc[m][0] += x * b0;
      acc[m][1] += x * b1;
    }
  }
  for (int m = 0; m < M; ++m) {
    store(c + m * c_row, acc[m][0]);
    store(c + m * c_row + kLanes, acc[m][1]);
  }
}

// c (+)= a @ b, where b is in panels of 16 columns: [panel][depth][16], `panel_size` floats apart.
__attribute__((noinline)) inline void product(const float* a, int64_t a_row, int64_t rows, const float* b,
                                              int64_t panel_size, int64_t panels, int64_t depth, float* c,
                                              int64_t c_row, bool add) {
  for (int64_t p = 0; p < panels; ++p) {
    const float* panel = b + p * panel_size;
    float* column = c + p * kPanel;
    int64_t m = 0;
    for (; m + 6 <= rows; m += 6) product_rows<6>(a + m * a_row, a_row, panel, depth, column + m * c_row, c_row, add);
    const float* x = a + m * a_row;
    float* y = column + m * c_row;
    switch (rows - m) {
      case 5: product_rows<5>(x, a_row, panel, depth, y, c_row, add); break;
      case 4: product_rows<4>(x, a_row, panel, depth, y, c_row, add); break;
      case 3: product_rows<3>(x, a_row, panel, depth, y, c_row, add); break;
      case 2: product_rows<2>(x, a_row, panel, depth, y, c_row, add); break;
      case 1: product_rows<1>(x, a_row, panel, depth, y, c_row, add); break;
      default: break;
    }
  }
}

// Keys to panels [panel][head_size rounded up to 8][16], transposed; absent keys are zeros.
template <class T>
void pack_keys(const SplitRows<T>& rows, int head_size, float* packed) {
  const int depth = (int)round_up(head_size, kLanes);
  for (int first = 0; first < rows.count; first += kLanes) {
    float* panel = packed + (int64_t)(first / kPanel) * depth * kPanel + first % kPanel;
    for (int d = 0; d < depth; d += kLanes) {
      vf block[kLanes] = {};
      for (int j = 0; j < kLanes && first + j < rows.count; ++j)
        block[j] = load_some<T>(rows.key[first + j] + d, head_size - d);
      transpose8(block);
      for (int j = 0; j < kLanes; ++j) store(panel + (int64_t)(d + j) * kPanel, block[j]);
    }
  }
  // The second half of the last panel, when no key reached it.
  const int done = (int)round_up(rows.count, kLanes);
  if (done % kPanel) {
    float* panel = packed + (int64_t)(done / kPanel) * depth * kPanel + kLanes;
    for (int d = 0; d < depth; ++d) store(panel + (int64_t)d * kPanel, vf{});
  }
}

// Values to panels [panel][kKeyTile][16]; absent columns are zeros.
template <class T>
void pack_values(const SplitRows<T>& rows, int size, float* packed) {
  const int padded = (int)round_up(size, kPanel);
  for (int t = 0; t < rows.count; ++t) {
    for (int d = 0; d < padded; d += kLanes) {
      vf v = d < size ? load_some<T>(rows.value[t] + d, size - d) : vf{};
      store(packed + ((int64_t)(d / kPanel) * kKeyTile + t) * kPanel + d % kPanel, v);
    }
  }
}

// One row of one tile: scores to weights, the running sums rescaled. Keys [from, to) of `count` are visible. Weights
// keep their places in the vectors whatever is visible, so that sums have one order.
GB_INLINE void tile_softmax(float* scores, int from, int to, int count, Running* state, float* sums,
                            int64_t padded_size) {
  if (from >= to) {
    for (int t = 0; t < count; ++t) scores[t] = 0.0f;
    return;
  }
  const int start = from / kLanes * kLanes, padded = (int)round_up(to, kLanes);
  for (int t = 0; t < start; ++t) scores[t] = 0.0f;
  for (int t = start; t < from; ++t) scores[t] = kMinusInfinity;
  for (int t = to; t < padded; ++t) scores[t] = kMinusInfinity;
  for (int t = padded; t < count; ++t) scores[t] = 0.0f;
  vf best = load(scores + start);
  for (int t = start + kLanes; t < padded; t += kLanes) {
    vf s = load(scores + t);
    best = s > best ? s : best;
  }
  float top = largest(best);
  top = top < state->top ? state->top : top;
  vf total = {};
  for (int t = start; t < padded; t += kLanes) {
    vf p = exp(load(scores + t) - splat(top));
    store(scores + t, p);
    total += p;
  }
  const float before = exp(state->top - top);
  state->total = state->total * before + sum(total);
  state->top = top;
  if (before != 1.0f)
    for (int64_t d = 0; d < padded_size; d += kLanes) store(sums + d, load(sums + d) * splat(before));
}

// What one thread needs for one tile.
struct TileScratch {
  float *query, *scores, *sums, *keys, *values;
  Running* running;

  static int64_t floats(int64_t rows, int64_t head_size, int64_t value_head_size) {
    const int64_t depth = round_up(head_size, kLanes), width = round_up(value_head_size, kPanel);
    return rows * (depth + kKeyTile + width + 2) + kKeyTile * (depth + width) + 64;
  }

  TileScratch(float* buffer, int64_t rows, int64_t head_size, int64_t value_head_size) {
    const int64_t depth = round_up(head_size, kLanes), width = round_up(value_head_size, kPanel);
    query = buffer;
    keys = query + rows * depth;
    values = keys + kKeyTile * depth;
    scores = values + kKeyTile * width;
    sums = scores + rows * kKeyTile;
    running = (Running*)(sums + rows * width);
  }
};

// The keys that tokens [first, last) of request `row` see between them.
GB_INLINE Span tile_span(const AttentionArgs& a, int64_t row, int64_t first, int64_t last) {
  const int64_t length = a.seq_lens[row];
  const int64_t before = length - (a.query_start_loc[row + 1] - a.query_start_loc[row]);
  const Span low = seen_from(a, before + first, length), high = seen_from(a, before + last - 1, length);
  return {low.first, high.last > low.first ? high.last : low.first};
}

// Tokens [first, last) of request `row` for one key-value head.
template <class T, class Rows>
Fault attend_tile(const AttentionArgs& a, int64_t row, int64_t head, int64_t first, int64_t last, TileScratch s,
                  Rows& places) {
  typedef typename T::raw raw;
  const Cache& cache = a.cache;
  const int head_size = (int)cache.head_size, size = (int)cache.value_head_size;
  const int64_t depth = round_up(head_size, kLanes), width = round_up(size, kPanel);
  const int64_t group = a.num_heads / cache.num_kv_heads, rows = (last - first) * group;
  const int64_t start = a.query_start_loc[row], length = a.seq_lens[row];
  const int64_t position = length - (a.query_start_loc[row + 1] - start) + first;
  const vf scale = splat((float)a.scale);
  const bool shaped = a.soft_cap != 0.0 || a.alibi_slopes;
  for (int64_t r = 0; r < rows; ++r) {
    const raw* q = (const raw*)a.query + (start + first + r / group) * a.query_token +
                   (head * group + r % group) * a.query_head;
    for (int d = 0; d < head_size; d += kLanes)
      store(s.query + r * depth + d, load_some<T>(q + d, head_size - d) * scale);
    for (int64_t d = 0; d < width; d += kLanes) store(s.sums + r * width + d, vf{});
    s.running[r] = nothing_seen(a, head * group + r % group);
  }
  const Span seen = tile_span(a, row, first, last);
  for (int64_t key = seen.first / kKeyTile * kKeyTile; key < seen.last; key += kKeyTile) {
    const Span here = {key < seen.first ? seen.first : key, key + kKeyTile < seen.last ? key + kKeyTile : seen.last};
    if (!places.find(cache, a.block_table + row * a.table_row, a.key_start ? a.key_start[row] : 0, head, here,
                     (int)(here.first - key)))
      return kBlockRange;
    pack_keys<T>(places, head_size, s.keys);
    product(s.query, depth, rows, s.keys, depth * kPanel, round_up(places.count, kPanel) / kPanel, head_size,
            s.scores, kKeyTile, false);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = position + r / group;
      const Span row_sees = seen_from(a, at, length);
      const int from = (int)(row_sees.first > key ? row_sees.first - key : 0);
      const int to = (int)(row_sees.last < here.last ? row_sees.last - key : here.last - key);
      float* scores = s.scores + r * kKeyTile;
      if (shaped) shape_scores(a, head * group + r % group, key - at, scores, from, to);
      tile_softmax(scores, from, to, places.count, &s.running[r], s.sums + r * width, width);
    }
    pack_values<T>(places, size, s.values);
    product(s.scores, kKeyTile, rows, s.values, kKeyTile * kPanel, width / kPanel, places.count, s.sums, width, true);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = start + first + r / group, query_head = head * group + r % group;
    raw* o = (raw*)a.out + token * a.out_token + query_head * a.out_head;
    const vf inverse = splat(inverse_total(s.running[r]));
    write_lse(a, token, query_head, s.running[r]);
    for (int d = 0; d < size; d += kLanes) store_some<T>(o + d, load(s.sums + r * width + d) * inverse, size - d);
  }
  return kNone;
}

}  // namespace gb
