// One new token per request: scores, softmax and weighted sum over splits of the keys.
// A row's splits start at its first visible key and are kSplit long, whoever computes them, so that a row's result
// depends on that row alone.
#pragma once

#include "args.h"
#include "scoring.h"
#include "vec.h"
#include "wide.h"

namespace gb {

constexpr int kSplit = 256;
constexpr int kGroupStep = kWide == 16 ? 4 : 3;  // query heads that share one pass over the keys: what registers hold

// Where the tokens of one split lie.
template <class T>
struct SplitRows {
  const typename T::raw* key[kSplit + 4];
  const typename T::raw* value[kSplit + 4];
  int count;
  int64_t next;  // bytes from a key to that of the head which the same thread takes next, 0 for none

  // Tokens `seen` of a row whose keys start `base` tokens into its blocks. The first `skip` places stand for tokens
  // that must not be read; they repeat the first one. False when a block is outside the pool.
  bool find(const Cache& cache, const int32_t* table, int64_t base, int64_t head, Span seen, int skip = 0) {
    const auto* keys = (const typename T::raw*)cache.key + head * cache.key_head;
    const auto* values = (const typename T::raw*)cache.value + head * cache.value_head;
    int64_t column = (base + seen.first) / cache.block_size, offset = (base + seen.first) % cache.block_size;
    count = skip + (int)seen.size();
    next = 0;
    for (int i = skip; i < count;) {
      const int64_t block = table[column++];
      if (block < 0 || block >= cache.num_blocks) return false;
      const auto* k = keys + block * cache.key_block + offset * cache.key_token;
      const auto* v = values + block * cache.value_block + offset * cache.value_token;
      for (; offset < cache.block_size && i < count; ++offset, ++i) {
        key[i] = k;
        value[i] = v;
        k += cache.key_token;
        v += cache.value_token;
      }
      offset = 0;
    }
    for (int i = 0; i < skip; ++i) {
      key[i] = key[skip];
      value[i] = value[skip];
    }
    for (int i = 0; i < 4; ++i) {
      key[count + i] = key[count - 1];
      value[count + i] = value[count - 1];
    }
    return true;
  }

  // This is a row's only split, so that the next head's keys can be asked for in time.
  void alone(const Cache& cache, int64_t head) {
    next = head + 1 < cache.num_kv_heads ? cache.key_head * (int64_t)sizeof(typename T::raw) : 0;
  }
};

// scores[g][t] = query[g] . key[t]; queries are padded with zeros to whole vectors and already scaled.
template <class T, int G, bool kRest>
__attribute__((noinline)) void split_scores(const float* query, int64_t query_row, const SplitRows<T>& rows,
                                            int head_size, int value_head_size, float* scores) {
  const int whole = head_size / kWide * kWide, rest = head_size - whole;
  const int64_t value_bytes = value_head_size * sizeof(typename T::raw);
  for (int t = 0; t < rows.count; t += 4) {
    const typename T::raw* const* key = rows.key + t;
    // Values are wanted once the split is scored: into the second cache. Keys are read in order and come in by
    // themselves; asking for them, too, was slower.
    for (int j = 0; j < 4; ++j)
      for (int64_t i = 0; i < value_bytes; i += 64) __builtin_prefetch((const char*)rows.value[t + j] + i, 0, 2);
    vw sums[G][4] = {};
    for (int d = 0; d < whole; d += kWide) {
      vw q[G];
      for (int g = 0; g < G; ++g) q[g] = wide_load(query + g * query_row + d);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const vw k = load_wide(T{}, key[j] + d);
        for (int g = 0; g < G; ++g) sums[g][j] += q[g] * k;
      }
    }
    if (kRest) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const vw k = load_wide_part<T>(key[j] + whole, rest);
        for (int g = 0; g < G; ++g) sums[g][j] += wide_load(query + g * query_row + whole) * k;
      }
    }
    for (int g = 0; g < G; ++g) wide_sum4(sums[g][0], sums[g][1], sums[g][2], sums[g][3], scores + g * kSplit + t);
  }
}

// Turn scores into weights in place; the largest score and the weights' sum come back.
GB_INLINE Running split_softmax(float* scores, int count) {
  const int padded = (int)round_up(count, kLanes);
  for (int t = count; t < padded; ++t) scores[t] = kMinusInfinity;
  vf best = load(scores);
  for (int t = kLanes; t < padded; t += kLanes) {
    vf s = load(scores + t);
    best = s > best ? s : best;
  }
  const float top = largest(best);
  vf sums = {};
  for (int t = 0; t < padded; t += kLanes) {
    vf p = exp(load(scores + t) - splat(top));
    store(scores + t, p);
    sums += p;
  }
  return {top, sum(sums)};
}

template <class T, int G, int C, bool kFetch = false>
GB_INLINE void weigh_columns(const float* weights, const SplitRows<T>& rows, int first, int part, float* sums,
                             int64_t sums_row, int64_t key_bytes = 0) {
  vw acc[G][C] = {};
  for (int t = 0; t < rows.count; ++t) {
    if (kFetch)
      for (int64_t i = 0; i < key_bytes; i += 64) __builtin_prefetch((const char*)rows.key[t] + rows.next + i);
    vw w[G];
    for (int g = 0; g < G; ++g) w[g] = wide_splat(weights[g * kSplit + t]);
    for (int c = 0; c < C; ++c) {
      const typename T::raw* p = rows.value[t] + first + c * kWide;
      const vw v = part ? load_wide_part<T>(p, part) : load_wide(T{}, p);
      for (int g = 0; g < G; ++g) acc[g][c] += w[g] * v;
    }
  }
  for (int g = 0; g < G; ++g)
    for (int c = 0; c < C; ++c) wide_store(sums + g * sums_row + first + c * kWide, acc[g][c]);
}

// sums[g] = weights[g] @ values
template <class T, int G>
__attribute__((noinline)) void weigh_values(const float* weights, const SplitRows<T>& rows, int size, float* sums,
                                            int64_t sums_row, int64_t key_bytes) {
  constexpr int wide = G == 1 ? 8 : 4;
  int d = 0;
  // While values are summed the next head's keys can come in.
  if (rows.next && size >= wide * kWide) {
    weigh_columns<T, G, wide, true>(weights, rows, 0, 0, sums, sums_row, key_bytes);
    d = wide * kWide;
  }
  for (; d + wide * kWide <= size; d += wide * kWide) weigh_columns<T, G, wide>(weights, rows, d, 0, sums, sums_row);
  for (; d + 2 * kWide <= size; d += 2 * kWide) weigh_columns<T, G, 2>(weights, rows, d, 0, sums, sums_row);
  for (; d + kWide <= size; d += kWide) weigh_columns<T, G, 1>(weights, rows, d, 0, sums, sums_row);
  if (d < size) weigh_columns<T, G, 1>(weights, rows, d, size - d, sums, sums_row);
}

// Merge a split into what came before it (log-sum-exp). One function, so that the arithmetic is always the same.
__attribute__((noinline)) inline void fold(Running* state, float* sums, Running split, const float* split_sums,
                                           int64_t padded_size) {
  const float top = state->top < split.top ? split.top : state->top;
  const float before = exp(state->top - top), now = exp(split.top - top);
  state->top = top;
  state->total = state->total * before + split.total * now;
  for (int64_t d = 0; d < padded_size; d += kLanes)
    store(sums + d, load(sums + d) * splat(before) + load(split_sums + d) * splat(now));
}

// What the heads of one group share while they attend to a split.
template <class T>
struct SplitWork {
  const AttentionArgs& a;
  const SplitRows<T>& rows;
  int64_t distance;   // position of the split's first key less that of the query
  const float* query;  // [heads][query_row]
  int64_t query_row;
  float* scores;  // [kGroupStep][kSplit]
  float* sums;    // [heads][sums_row]
  int64_t sums_row;
};

// Query heads [first, first + G) of the group, the first of which is `head`.
template <class T, int G>
GB_INLINE void attend_heads(const SplitWork<T>& w, int64_t head, int64_t first, Running* running) {
  const int head_size = (int)w.a.cache.head_size, size = (int)w.a.cache.value_head_size;
  const float* query = w.query + first * w.query_row;
  if (head_size % kWide) {
    split_scores<T, G, true>(query, w.query_row, w.rows, head_size, size, w.scores);
  } else {
    split_scores<T, G, false>(query, w.query_row, w.rows, head_size, size, w.scores);
  }
  for (int g = 0; g < G; ++g) {
    float* scores = w.scores + g * kSplit;
    shape_scores(w.a, head + first + g, w.distance, scores, 0, w.rows.count);
    running[first + g] = split_softmax(scores, w.rows.count);
  }
  weigh_values<T, G>(w.scores, w.rows, size, w.sums + first * w.sums_row, w.sums_row,
                     head_size * (int64_t)sizeof(typename T::raw));
}

template <class T>
void attend_split(const SplitWork<T>& work, int64_t head, int group, Running* running) {
  for (int g = 0; g < group;) {
    const int left = group - g;
    // Whole steps first, but not 3 + 1 for 4, nor 4 + 1 for 5.
    const int step = left == kGroupStep + 1 ? (left + 1) / 2 : left < kGroupStep ? left : kGroupStep;
    if (kGroupStep > 3 && step == 4) attend_heads<T, kGroupStep>(work, head, g, running);
    if (step == 3) attend_heads<T, 3>(work, head, g, running);
    if (step == 2) attend_heads<T, 2>(work, head, g, running);
    if (step == 1) attend_heads<T, 1>(work, head, g, running);
    g += step;
  }
}

}  // namespace gb
