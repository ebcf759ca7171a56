// Eight floats at a time, and the element types of activations and caches.
// Results must not depend on how work is divided, so every reduction here has one fixed order.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#define GB_INLINE static inline __attribute__((always_inline))

namespace gb {

constexpr int kLanes = 8;

typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));
typedef uint32_t vu __attribute__((vector_size(32)));
typedef uint16_t vh __attribute__((vector_size(16)));

GB_INLINE vf splat(float x) { return vf{x, x, x, x, x, x, x, x}; }

GB_INLINE vf load(const float* p) {
  vf v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

GB_INLINE void store(float* p, vf v) { std::memcpy(p, &v, sizeof v); }

// NaN in the first argument stays.
GB_INLINE vf at_least(vf x, vf low) { return x < low ? low : x; }
GB_INLINE vf at_most(vf x, vf high) { return x > high ? high : x; }

GB_INLINE float sum(vf v) {
  return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

GB_INLINE float largest(vf v) {
  float best = v[0];
  for (int i = 1; i < kLanes; ++i) best = best < v[i] ? v[i] : best;
  return best;
}

// The sums of four vectors, side by side.
GB_INLINE void sum4(vf a, vf b, vf c, vf d, float* out) {
#if defined(__AVX__)
  __m256 ab = _mm256_hadd_ps((__m256)a, (__m256)b);
  __m256 cd = _mm256_hadd_ps((__m256)c, (__m256)d);
  __m256 abcd = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
#else
  out[0] = sum(a);
  out[1] = sum(b);
  out[2] = sum(c);
  out[3] = sum(d);
#endif
}

// e**x within two units in the last place; 0 below -87.3, and 88.3 stands for everything above it.
GB_INLINE vf exp(vf x) {
  const vf magic = splat(12582912.0f);  // adding it rounds to the nearest integer
  vf bounded = at_most(at_least(x, splat(-87.33f)), splat(88.3f));
  vf shifted = bounded * splat(1.44269504f) + magic;
  vf n = shifted - magic;
  vf r = bounded - n * splat(0.693359375f);
  r = r - n * splat(-2.12194440e-4f);
  // Cephes' expf polynomial on [-ln 2 / 2, ln 2 / 2].
  vf p = splat(1.9875691500e-4f);
  p = p * r + splat(1.3981999507e-3f);
  p = p * r + splat(8.3334519073e-3f);
  p = p * r + splat(4.1665795894e-2f);
  p = p * r + splat(1.6666665459e-1f);
  p = p * r + splat(5.0000001201e-1f);
  p = p * (r * r) + r + splat(1.0f);
  // Shifting drops the magic number's own bits and leaves n in the exponent's place.
  vf power = (vf)(((vi)shifted << 23) + (127 << 23));
  return x < splat(-87.33f) ? splat(0.0f) : p * power;
}

GB_INLINE float exp(float x) { return exp(splat(x))[0]; }

struct Float32 {
  typedef float raw;
  GB_INLINE vf load8(const raw* p) { return load(p); }
  GB_INLINE void store8(raw* p, vf v) { store(p, v); }
};

struct BFloat16 {
  typedef uint16_t raw;
  GB_INLINE vf load8(const raw* p) {
    vh half;
    std::memcpy(&half, p, sizeof half);
    return (vf)(__builtin_convertvector(half, vu) << 16);
  }
  GB_INLINE void store8(raw* p, vf v) {
    vu bits = (vu)v;
    vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    vu nan = (vu){} + 0x7fc0u;
    rounded = (bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
    vh half = __builtin_convertvector(rounded, vh);
    std::memcpy(p, &half, sizeof half);
  }
};

struct Float16 {
  typedef uint16_t raw;
  GB_INLINE vf load8(const raw* p) {
#if defined(__F16C__)
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#else
    _Float16 half[kLanes];
    std::memcpy(half, p, sizeof half);
    vf v;
    for (int i = 0; i < kLanes; ++i) v[i] = (float)half[i];
    return v;
#endif
  }
  GB_INLINE void store8(raw* p, vf v) {
#if defined(__F16C__)
    _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#else
    _Float16 half[kLanes];
    for (int i = 0; i < kLanes; ++i) half[i] = (_Float16)v[i];
    std::memcpy(p, half, sizeof half);
#endif
  }
};

// The first `count` (< 8) elements, zeros behind them; nothing beyond them is touched.
template <class T>
GB_INLINE vf load_part(const typename T::raw* p, int count) {
  typename T::raw part[kLanes] = {};
  for (int i = 0; i < count; ++i) part[i] = p[i];
  return T::load8(part);
}

template <class T>
GB_INLINE void store_part(typename T::raw* p, vf v, int count) {
  typename T::raw part[kLanes];
  T::store8(part, v);
  for (int i = 0; i < count; ++i) p[i] = part[i];
}

template <class T>
GB_INLINE vf load_some(const typename T::raw* p, int count) {
  return count >= kLanes ? T::load8(p) : load_part<T>(p, count);
}

template <class T>
GB_INLINE void store_some(typename T::raw* p, vf v, int count) {
  if (count >= kLanes) {
    T::store8(p, v);
  } else {
    store_part<T>(p, v, count);
  }
}

GB_INLINE int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Rows of eight floats to columns.
GB_INLINE void transpose8(vf row[8]) {
#if defined(__AVX__)
  __m256 t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps((__m256)row[i], (__m256)row[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps((__m256)row[i], (__m256)row[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    row[i] = (vf)_mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    row[i + 4] = (vf)_mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
#else
  vf column[8];
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) column[j][i] = row[i][j];
  for (int i = 0; i < 8; ++i) row[i] = column[i];
#endif
}

}  // namespace gb
