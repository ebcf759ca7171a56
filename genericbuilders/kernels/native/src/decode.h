// One new token per request: scores, softmax and weighted sum over splits of the keys.
// A split always starts at a multiple of kSplit keys, whoever computes it, so that a row's result depends on
// that row alone.
#pragma once

#include <limits>

#include "args.h"
#include "vec.h"

namespace gb {

constexpr int kSplit = 256;
constexpr int kGroupStep = 3;  // query heads that share one pass over the keys: what 16 registers hold

// Where the tokens of one split lie.
template <class T>
struct SplitRows {
  const typename T::raw* key[kSplit + 4];
  const typename T::raw* value[kSplit + 4];
  int count;
  int64_t next;  // bytes from a key to that of the head which the same thread takes next, 0 for none
  bool fetched;  // whether the head before this one has already asked for these keys

  // False when a block is outside the pool.
  bool find(const Cache& cache, const int32_t* table, int64_t head, int64_t first, int64_t last) {
    const auto* keys = (const typename T::raw*)cache.key + head * cache.key_head;
    const auto* values = (const typename T::raw*)cache.value + head * cache.value_head;
    int64_t column = first / cache.block_size, offset = first % cache.block_size;
    count = (int)(last - first);
    const bool alone = !first && last < kSplit;  // the row's only split
    next = alone && head + 1 < cache.num_kv_heads ? cache.key_head * (int64_t)sizeof(typename T::raw) : 0;
    fetched = alone && head > 0;
    for (int i = 0; i < count;) {
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
    for (int i = 0; i < 4; ++i) {
      key[count + i] = key[count - 1];
      value[count + i] = value[count - 1];
    }
    return true;
  }
};

// How far ahead of their use keys are fetched; the block after this one lies anywhere.
constexpr int kAhead = 16;  // tokens

// scores[g][t] = query[g] . key[t]; queries are padded with zeros to whole vectors and already scaled.
template <class T, int G, bool kRest>
__attribute__((noinline)) void split_scores(const float* query, int64_t query_row, const SplitRows<T>& rows,
                                            int head_size, int value_head_size, float* scores) {
  const int whole = head_size / kLanes * kLanes, rest = head_size - whole;
  const int64_t key_bytes = head_size * sizeof(typename T::raw), value_bytes = value_head_size * sizeof(typename T::raw);
  for (int t = 0; t < rows.count; t += 4) {
    const typename T::raw* const* key = rows.key + t;
    if (!rows.fetched) {
      const int ahead = t + kAhead < rows.count ? t + kAhead : rows.count;
      for (int j = 0; j < 4; ++j)
        for (int64_t i = 0; i < key_bytes; i += 64) __builtin_prefetch((const char*)rows.key[ahead + j] + i);
    }
    for (int j = 0; j < 4; ++j)
      for (int64_t i = 0; i < value_bytes; i += 64) __builtin_prefetch((const char*)rows.value[t + j] + i);
    vf sums[G][4] = {};
    for (int d = 0; d < whole; d += kLanes) {
      vf q[G];
      for (int g = 0; g < G; ++g) q[g] = load(query + g * query_row + d);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const vf k = T::load8(key[j] + d);
        for (int g = 0; g < G; ++g) sums[g][j] += q[g] * k;
      }
    }
    if (kRest) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const vf k = load_part<T>(key[j] + whole, rest);
        for (int g = 0; g < G; ++g) sums[g][j] += load(query + g * query_row + whole) * k;
      }
    }
    for (int g = 0; g < G; ++g) sum4(sums[g][0], sums[g][1], sums[g][2], sums[g][3], scores + g * kSplit + t);
  }
}

// Turn scores into weights in place; the largest score and the weights' sum come back.
GB_INLINE void split_softmax(float* scores, int count, float* top, float* total) {
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  const int padded = (int)round_up(count, kLanes);
  for (int t = count; t < padded; ++t) scores[t] = minus_infinity;
  vf best = load(scores);
  for (int t = kLanes; t < padded; t += kLanes) {
    vf s = load(scores + t);
    best = s > best ? s : best;
  }
  *top = largest(best);
  vf sums = {};
  for (int t = 0; t < padded; t += kLanes) {
    vf p = exp(load(scores + t) - splat(*top));
    store(scores + t, p);
    sums += p;
  }
  *total = sum(sums);
}

template <class T, int G, int C, bool kFetch = false>
GB_INLINE void weigh_columns(const float* weights, const SplitRows<T>& rows, int first, int part, float* sums,
                             int64_t sums_row, int64_t key_bytes = 0) {
  vf acc[G][C] = {};
  for (int t = 0; t < rows.count; ++t) {
    if (kFetch)
      for (int64_t i = 0; i < key_bytes; i += 64) __builtin_prefetch((const char*)rows.key[t] + rows.next + i);
    vf w[G];
    for (int g = 0; g < G; ++g) w[g] = splat(weights[g * kSplit + t]);
    for (int c = 0; c < C; ++c) {
      const typename T::raw* p = rows.value[t] + first + c * kLanes;
      const vf v = part ? load_part<T>(p, part) : T::load8(p);
      for (int g = 0; g < G; ++g) acc[g][c] += w[g] * v;
    }
  }
  for (int g = 0; g < G; ++g)
    for (int c = 0; c < C; ++c) store(sums + g * sums_row + first + c * kLanes, acc[g][c]);
}

// sums[g] = weights[g] @ values
template <class T, int G>
__attribute__((noinline)) void weigh_values(const float* weights, const SplitRows<T>& rows, int size, float* sums,
                                            int64_t sums_row, int64_t key_bytes) {
  constexpr int wide = G == 1 ? 8 : 4;
  int d = 0;
  // While values are summed the next head's keys can come in.
  if (rows.next && size >= wide * kLanes) {
    weigh_columns<T, G, wide, true>(weights, rows, 0, 0, sums, sums_row, key_bytes);
    d = wide * kLanes;
  }
  for (; d + wide * kLanes <= size; d += wide * kLanes) weigh_columns<T, G, wide>(weights, rows, d, 0, sums, sums_row);
  for (; d + 2 * kLanes <= size; d += 2 * kLanes) weigh_columns<T, G, 2>(weights, rows, d, 0, sums, sums_row);
  for (; d + kLanes <= size; d += kLanes) weigh_columns<T, G, 1>(weights, rows, d, 0, sums, sums_row);
  if (d < size) weigh_columns<T, G, 1>(weights, rows, d, size - d, sums, sums_row);
}

// One query head's result so far, or one split's: the sum of values is not yet divided.
struct Running {
  float top, total;
};

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

template <class T, int G>
GB_INLINE void attend_heads(const float* query, int64_t query_row, const SplitRows<T>& rows, int head_size,
                            int value_head_size, float* scores, Running* running, float* sums, int64_t sums_row) {
  if (head_size % kLanes) {
    split_scores<T, G, true>(query, query_row, rows, head_size, value_head_size, scores);
  } else {
    split_scores<T, G, false>(query, query_row, rows, head_size, value_head_size, scores);
  }
  for (int g = 0; g < G; ++g) split_softmax(scores + g * kSplit, rows.count, &running[g].top, &running[g].total);
  weigh_values<T, G>(scores, rows, value_head_size, sums, sums_row, head_size * (int64_t)sizeof(typename T::raw));
}

template <class T>
void attend_split(const float* query, int64_t query_row, int group, const SplitRows<T>& rows, int head_size,
                  int value_head_size, float* scores, Running* running, float* sums, int64_t sums_row) {
  for (int g = 0; g < group;) {
    const int left = group - g;
    // 4 heads go as 2 + 2, not 3 + 1.
    const int step = left >= 5 || left == 3 ? kGroupStep : left >= 2 ? 2 : 1;
    const float* q = query + g * query_row;
    float* s = sums + g * sums_row;
    if (step == 3) attend_heads<T, 3>(q, query_row, rows, head_size, value_head_size, scores, running + g, s, sums_row);
    if (step == 2) attend_heads<T, 2>(q, query_row, rows, head_size, value_head_size, scores, running + g, s, sums_row);
    if (step == 1) attend_heads<T, 1>(q, query_row, rows, head_size, value_head_size, scores, running + g, s, sums_row);
    g += step;
  }
}

}  // namespace gb
