// As many floats at a time as the registers hold: 16 with AVX-512, else 8. For loops that stream keys and values.
#pragma once

#include "vec.h"

namespace gb {

#if defined(__AVX512F__)

constexpr int kWide = 16;
typedef float vw __attribute__((vector_size(64)));

GB_INLINE vw wide_splat(float x) { return (vw)_mm512_set1_ps(x); }
GB_INLINE vw wide_load(const float* p) { return (vw)_mm512_loadu_ps(p); }
GB_INLINE void wide_store(float* p, vw v) { _mm512_storeu_ps(p, (__m512)v); }

GB_INLINE vw load_wide(Float32, const float* p) { return (vw)_mm512_loadu_ps(p); }
GB_INLINE vw load_wide(BFloat16, const uint16_t* p) {
  return (vw)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16);
}
GB_INLINE vw load_wide(Float16, const uint16_t* p) {
  return (vw)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}

// The sums of four vectors, side by side.
GB_INLINE void wide_sum4(vw a, vw b, vw c, vw d, float* out) {
  __m512 ab = _mm512_unpacklo_ps((__m512)a, (__m512)b) + _mm512_unpackhi_ps((__m512)a, (__m512)b);
  __m512 cd = _mm512_unpacklo_ps((__m512)c, (__m512)d) + _mm512_unpackhi_ps((__m512)c, (__m512)d);
  __m512d low = _mm512_unpacklo_pd((__m512d)ab, (__m512d)cd), high = _mm512_unpackhi_pd((__m512d)ab, (__m512d)cd);
  __m512 quarters = (__m512)low + (__m512)high;
  __m256 halves = _mm512_castps512_ps256(quarters) +
                  (__m256)_mm512_extractf64x4_pd((__m512d)quarters, 1);
  _mm_storeu_ps(out, _mm256_castps256_ps128(halves) + _mm256_extractf128_ps(halves, 1));
}

#else

constexpr int kWide = kLanes;
typedef vf vw;

GB_INLINE vw wide_splat(float x) { return splat(x); }
GB_INLINE vw wide_load(const float* p) { return load(p); }
GB_INLINE void wide_store(float* p, vw v) { store(p, v); }
template <class T>
GB_INLINE vw load_wide(T, const typename T::raw* p) {
  return T::load8(p);
}
GB_INLINE void wide_sum4(vw a, vw b, vw c, vw d, float* out) { sum4(a, b, c, d, out); }

#endif

// The first `count` (< kWide) elements, zeros behind them; nothing beyond them is touched.
template <class T>
GB_INLINE vw load_wide_part(const typename T::raw* p, int count) {
  typename T::raw part[kWide] = {};
  for (int i = 0; i < count; ++i) part[i] = p[i];
  return load_wide(T{}, part);
}

}  // namespace gb
