// Rotary embedding with the write to the cache, RMS norm and gated activations: one pass each over their inputs.
#include <atomic>
#include <cmath>

#include "args.h"
#include "vec.h"

namespace gb {
namespace {

// Elements below which one thread is quicker than starting a second.
constexpr int64_t kWorthCopying = 1 << 13;
constexpr int64_t kWorthNorming = 1 << 13;
constexpr int64_t kWorthActivating = 1 << 13;

template <class T>
struct Angles {
  const typename T::raw *cos, *sin;
};

// One head: the first `dim` elements turned (rotate-half), the rest copied; `in` and `out` may be the same.
template <class T, class R>
GB_INLINE void rotate(const typename T::raw* in, typename T::raw* out, Angles<R> at, int dim, int size) {
  const int half = dim / 2;
  for (int d = 0; d < half; d += kLanes) {
    const int n = half - d;
    const vf low = load_some<T>(in + d, n), high = load_some<T>(in + half + d, n);
    const vf turned_low = low * load_some<R>(at.cos + d, n) - high * load_some<R>(at.sin + d, n);
    const vf turned_high = high * load_some<R>(at.cos + half + d, n) + low * load_some<R>(at.sin + half + d, n);
    store_some<T>(out + d, turned_low, n);
    store_some<T>(out + half + d, turned_high, n);
  }
  if (dim < size && in != out) std::memcpy(out + dim, in + dim, (size - dim) * sizeof *in);
}

// R is the type of cosines and sines; without them (rotary_dim 0) this is the plain write to the cache.
template <class T, class R>
int64_t rope_and_cache(const RopeArgs& a) {
  typedef typename T::raw raw;
  const Cache& c = a.cache;
  const int size = (int)c.head_size, value_size = (int)c.value_head_size, dim = (int)a.rotary_dim;
  const int64_t slots = c.num_blocks * c.block_size;
  for (int64_t token = 0; token < a.num_tokens; ++token)
    if (a.slot_mapping[token] < -1 || a.slot_mapping[token] >= slots) return fault_at(kSlotRange, token);
  const int64_t work = a.num_tokens * (a.num_heads * size + c.num_kv_heads * (size + value_size));
#pragma omp parallel for schedule(static) num_threads((int)a.threads) if (work > kWorthCopying)
  for (int64_t token = 0; token < a.num_tokens; ++token) {
    const Angles<R> at = {(const typename R::raw*)a.cos + token * a.cos_token,
                          (const typename R::raw*)a.sin + token * a.sin_token};
    const raw* q = (const raw*)a.query + token * a.query_token;
    raw* o = (raw*)a.out + token * a.out_token;
    for (int64_t h = 0; h < a.num_heads; ++h) rotate<T, R>(q + h * a.query_head, o + h * a.out_head, at, dim, size);
    const int64_t slot = a.slot_mapping[token];
    if (slot < 0) continue;
    const int64_t block = slot / c.block_size, offset = slot % c.block_size;
    const raw* k = (const raw*)a.key + token * a.key_token;
    const raw* v = (const raw*)a.value + token * a.value_token;
    raw* kept_k = (raw*)c.key + block * c.key_block + offset * c.key_token;
    raw* kept_v = (raw*)c.value + block * c.value_block + offset * c.value_token;
    for (int64_t h = 0; h < c.num_kv_heads; ++h) {
      rotate<T, R>(k + h * a.key_head, kept_k + h * c.key_head, at, dim, size);
      std::memcpy(kept_v + h * c.value_head, v + h * a.value_head, value_size * sizeof(raw));
    }
  }
  return 0;
}

template <class T>
int64_t rope_dispatch(const RopeArgs& a) {
  return a.rotary_is_float32 ? rope_and_cache<T, Float32>(a) : rope_and_cache<T, T>(a);
}

template <class T>
int64_t rms_norm(const NormArgs& a) {
  typedef typename T::raw raw;
  const int size = (int)a.size;
  const raw* weight = (const raw*)a.weight;
#pragma omp parallel for schedule(static) num_threads((int)a.threads) if (a.num_tokens * a.size > kWorthNorming)
  for (int64_t token = 0; token < a.num_tokens; ++token) {
    const raw* x = (const raw*)a.hidden + token * a.hidden_token;
    if (a.residual) {
      raw* r = (raw*)a.residual + token * a.residual_token;
      for (int d = 0; d < size; d += kLanes)
        store_some<T>(r + d, load_some<T>(x + d, size - d) + load_some<T>(r + d, size - d), size - d);
      x = r;
    }
    vf squares[4] = {};
    int d = 0;
    for (; d + 4 * kLanes <= size; d += 4 * kLanes)
      for (int i = 0; i < 4; ++i) {
        const vf v = T::load8(x + d + i * kLanes);
        squares[i] += v * v;
      }
    for (; d < size; d += kLanes) {
      const vf v = load_some<T>(x + d, size - d);
      squares[0] += v * v;
    }
    const float mean = sum((squares[0] + squares[1]) + (squares[2] + squares[3])) / (float)size;
    const vf factor = splat(1.0f / std::sqrt(mean + (float)a.epsilon));
    raw* o = (raw*)a.out + token * a.out_token;
    for (d = 0; d < size; d += kLanes)
      store_some<T>(o + d, load_some<T>(x + d, size - d) * factor * load_some<T>(weight + d, size - d), size - d);
  }
  return 0;
}

// x * sigmoid(z), where z is x for SiLU and 2 sqrt(2 / pi) (x + 0.044715 x**3) for the tanh form of GELU.
template <bool kGelu>
GB_INLINE vf activate(vf x) {
  const vf z = kGelu ? splat(1.5957691216f) * (x + splat(0.044715f) * x * x * x) : x;
  return x / (splat(1.0f) + exp(-z));
}

template <class T, bool kGelu>
int64_t gated(const GatedArgs& a) {
  typedef typename T::raw raw;
  const int64_t size = a.size;
#pragma omp parallel for schedule(static) num_threads((int)a.threads) if (a.num_tokens * size > kWorthActivating)
  for (int64_t token = 0; token < a.num_tokens; ++token) {
    const raw* gate = (const raw*)a.gate_up + token * a.gate_up_token;
    const raw* up = gate + size;
    raw* o = (raw*)a.out + token * a.out_token;
    int64_t d = 0;
    for (; d + kLanes <= size; d += kLanes) T::store8(o + d, activate<kGelu>(T::load8(gate + d)) * T::load8(up + d));
    if (d < size) {
      const int rest = (int)(size - d);
      store_part<T>(o + d, activate<kGelu>(load_part<T>(gate + d, rest)) * load_part<T>(up + d, rest), rest);
    }
  }
  return 0;
}

template <class T>
int64_t gated_dispatch(const GatedArgs& a) {
  return a.activation ? gated<T, true>(a) : gated<T, false>(a);
}

}  // namespace
}  // namespace gb

#define GB_ENTRY(name, Args, function)                         \
  extern "C" int64_t name(const gb::Args* args) {              \
    switch (args->dtype) {                                     \
      case gb::kFloat32: return gb::function<gb::Float32>(*args);   \
      case gb::kBFloat16: return gb::function<gb::BFloat16>(*args); \
      default: return gb::function<gb::Float16>(*args);        \
    }                                                          \
  }

GB_ENTRY(gb_rope_and_cache, RopeArgs, rope_dispatch)
GB_ENTRY(gb_rms_norm, NormArgs, rms_norm)
GB_ENTRY(gb_gated, GatedArgs, gated_dispatch)
