// What happens to scores between the product of query and key and the softmax, and which keys a token sees
// (genericbuilders/kernels/scoring.py).
#pragma once

#include <limits>

#include "args.h"
#include "vec.h"

namespace gb {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Within a few units in the last place, near 0 too.
GB_INLINE vf tanh(vf x) {
  const vf size = x < splat(0.0f) ? -x : x;
  // Cephes' tanhf polynomial below 0.625.
  const vf z = x * x;
  vf p = splat(-5.70498872745e-3f);
  p = p * z + splat(2.06390887954e-2f);
  p = p * z + splat(-5.37397155531e-2f);
  p = p * z + splat(1.33314422036e-1f);
  p = p * z + splat(-3.33332819422e-1f);
  const vf small = p * z * x + x;
  const vf large = splat(1.0f) - splat(2.0f) / (exp(size + size) + splat(1.0f));
  return size < splat(0.625f) ? small : x < splat(0.0f) ? -large : large;
}

// Keys [first, last) of a row.
struct Span {
  int64_t first, last;
  int64_t size() const { return last - first; }
};

// What the token at `position` sees of `length` keys. Positions below 0 exist where there are more tokens than keys.
GB_INLINE Span seen_from(const AttentionArgs& a, int64_t position, int64_t length) {
  Span seen = {0, a.causal ? position + 1 : length};
  if (a.window) {
    seen.first = position >= a.window ? position - a.window + 1 : 0;
    if (!a.causal && position + a.window < length) seen.last = position + a.window;
  }
  if (seen.last < seen.first) seen.last = seen.first;
  return seen;
}

// Soft cap and ALiBi on scores [from, to), in whole vectors, so that some beyond them change, too.
// `distance`: position of the first key less that of the query.
GB_INLINE void shape_scores(const AttentionArgs& a, int64_t head, int64_t distance, float* scores, int from, int to) {
  const int start = from / kLanes * kLanes;
  if (a.soft_cap != 0.0) {
    const vf cap = splat((float)a.soft_cap), inverse = splat((float)(1.0 / a.soft_cap));
    for (int t = start; t < to; t += kLanes) store(scores + t, cap * tanh(load(scores + t) * inverse));
  }
  if (a.alibi_slopes) {
    const vf slope = splat(a.alibi_slopes[head]);
    const vf lanes = {0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f};
    for (int t = start; t < to; t += kLanes)
      store(scores + t, load(scores + t) + slope * (splat((float)(distance + t)) + lanes));
  }
}

// A query head's result so far: the sum of values is not yet divided by `total`, which is relative to e**top.
struct Running {
  float top, total;
};

// Before any key. A sink counts as a key that has no value.
GB_INLINE Running nothing_seen(const AttentionArgs& a, int64_t head) {
  return a.sinks ? Running{a.sinks[head], 1.0f} : Running{kMinusInfinity, 0.0f};
}

GB_INLINE float inverse_total(Running state) {
  return state.total > 0.0f ? 1.0f / state.total : state.total;  // 0 and NaN stay
}

GB_INLINE void write_lse(const AttentionArgs& a, int64_t token, int64_t head, Running state) {
  if (a.lse) a.lse[token * a.lse_token + head * a.lse_head] = state.top + logf(state.total);
}

}  // namespace gb
