// Reading quantised caches: what a piece of work needs is unpacked to floats first, into memory of its thread that stays
// in the second cache, and then attended over like a float cache.
#pragma once

#include <memory>

#include "decode.h"
#include "quantised_args.h"

namespace gb {

// Eight float8 e4m3 numbers. A float16 has room for their parts, and its exponents start 8 lower.
GB_INLINE vf float8_lanes(const uint8_t* p) {
#if defined(__AVX__) && defined(__F16C__)
  const __m128i parts = _mm_set1_epi16(0x3f80);
  __m128i half = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i*)p)), 7);
  const __m128i no_number = _mm_cmpeq_epi16(_mm_and_si128(half, parts), parts);
  half = _mm_and_si128(half, _mm_set1_epi16((short)0xbf80));
  half = _mm_or_si128(half, _mm_and_si128(no_number, _mm_set1_epi16(0x7e00)));
  return (vf)_mm256_cvtph_ps(half) * splat(256.0f);
#else
  vf v;
  for (int i = 0; i < kLanes; ++i) {
    const int exponent = (p[i] >> 3) & 15, fraction = p[i] & 7;
    const uint32_t bits = (uint32_t)((exponent ? exponent : 1) - 10 + 127) << 23;  // 2 to the power of the last place
    float unit;
    std::memcpy(&unit, &bits, sizeof unit);
    const float size = (float)(exponent ? 8 + fraction : fraction) * unit;
    const float number = exponent == 15 && fraction == 7 ? std::nanf("") : size;
    v[i] = p[i] & 0x80 ? -number : number;
  }
  return v;
#endif
}

GB_INLINE vf int8_lanes(const uint8_t* p) {
#if defined(__AVX2__)
  return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
#else
  vf v;
  for (int i = 0; i < kLanes; ++i) v[i] = (float)(int8_t)p[i];
  return v;
#endif
}

// The levels of eight codes of `bits` bits (2 to 4), the lowest first. Reads four bytes, of which the last ones may
// belong to what follows in the slot: a factor of two bytes at least, and behind a key's a value.
GB_INLINE vf level_lanes(const uint8_t* p, int bits, vf low, vf high) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  const vu lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  const vu code = ((vu{} + word) >> (lanes * (uint32_t)bits)) & ((1u << bits) - 1);
#if defined(__AVX512VL__)
  return (vf)_mm256_permutex2var_ps((__m256)low, (__m256i)code, (__m256)high);
#elif defined(__AVX2__)
  const __m256 lower = _mm256_permutevar8x32_ps((__m256)low, (__m256i)code);
  const __m256 upper = _mm256_permutevar8x32_ps((__m256)high, (__m256i)code);
  return (vf)_mm256_blendv_ps(lower, upper, (__m256)(code << 28));
#else
  vf v;
  for (int i = 0; i < kLanes; ++i) v[i] = code[i] < 8 ? low[code[i]] : high[code[i] - 8];
  return v;
#endif
}

GB_INLINE float vector_factor(const VectorCode& code, const uint8_t* slot) {
  if (code.factor_bytes == 4) {
    float factor;
    std::memcpy(&factor, slot + code.factor, sizeof factor);
    return factor;
  }
  if (code.factor_bytes == 2) {
    uint16_t half;
    std::memcpy(&half, slot + code.factor, sizeof half);
    return load_part<Float16>(&half, 1)[0];
  }
  return (float)code.factor_of_all;
}

// `count` vectors of `size` elements, `slot_bytes` apart, to rows of `depth` floats; whole vectors of lanes are written.
template <Coding kCoding>
GB_INLINE void unpack(const VectorCode& code, const uint8_t* slot, int64_t slot_bytes, int count, int size, float* out,
                      int64_t depth) {
  const int bits = (int)code.bits, whole = size / kLanes * kLanes;
  const vf low = kCoding == kLevels ? load(code.levels) : vf{}, high = kCoding == kLevels ? load(code.levels + 8) : vf{};
  for (int t = 0; t < count; ++t, slot += slot_bytes, out += depth) {
    const uint8_t* p = slot + code.elements;
    const vf factor = splat(vector_factor(code, slot));
    if (kCoding == kLevels) {
      for (int d = 0; d < size; d += kLanes, p += bits) store(out + d, level_lanes(p, bits, low, high) * factor);
      continue;
    }
    for (int d = 0; d < whole; d += kLanes)
      store(out + d, (kCoding == kInt8 ? int8_lanes(p + d) : float8_lanes(p + d)) * factor);
    if (whole < size) {
      uint8_t rest[kLanes] = {};
      std::memcpy(rest, p + whole, size - whole);
      store(out + whole, (kCoding == kInt8 ? int8_lanes(rest) : float8_lanes(rest)) * factor);
    }
  }
}

__attribute__((noinline)) inline void unpack_vectors(const VectorCode& code, const uint8_t* slot, int64_t slot_bytes,
                                                     int count, int size, float* out, int64_t depth) {
  switch (code.coding) {
    case kFloat8: return unpack<kFloat8>(code, slot, slot_bytes, count, size, out, depth);
    case kInt8: return unpack<kInt8>(code, slot, slot_bytes, count, size, out, depth);
    default: return unpack<kLevels>(code, slot, slot_bytes, count, size, out, depth);
  }
}

// The tokens of one split, unpacked.
struct QuantisedRows : SplitRows<Float32> {
  const QuantisedArgs& args;
  const int size;
  const int64_t depth;
  std::unique_ptr<float[]> memory;
  float *keys, *values;

  explicit QuantisedRows(const QuantisedArgs& a)
      : args(a),
        size((int)a.attention.cache.head_size),
        depth(round_up(size, 16)),
        memory(new float[2 * kSplit * depth + 16]) {
    // Rows start where a line of the cache does.
    const uintptr_t start = ((uintptr_t)memory.get() + 63) / 64 * 64;
    keys = (float*)start;
    values = keys + kSplit * depth;
  }

  // As in SplitRows. `base` is always 0.
  bool find(const Cache& cache, const int32_t* table, int64_t, int64_t head, Span seen, int skip = 0) {
    const uint8_t* slots = (const uint8_t*)cache.key + head * cache.key_head;
    int64_t column = seen.first / cache.block_size, offset = seen.first % cache.block_size;
    count = skip + (int)seen.size();
    next = 0;
    for (int i = skip; i < count; ++column, offset = 0) {
      const int64_t block = table[column];
      if (block < 0 || block >= cache.num_blocks) return false;
      const int64_t left = count - i, here = cache.block_size - offset;
      const int taken = (int)(here < left ? here : left);
      const uint8_t* slot = slots + block * cache.key_block + offset * cache.key_token;
      // Slots come from memory; the next ones are asked for while these are unpacked.
      if (left > here) {
        const uint8_t* then = slots + table[column + 1] * cache.key_block;
        const int64_t bytes = (left - here < cache.block_size ? left - here : cache.block_size) * cache.key_token;
        for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(then + b);
      }
      unpack_vectors(args.key, slot, cache.key_token, taken, size, keys + i * depth, depth);
      unpack_vectors(args.value, slot, cache.key_token, taken, size, values + i * depth, depth);
      i += taken;
    }
    for (int i = 0; i < count + 4; ++i) {
      const int64_t at = i < skip ? skip : i < count ? i : count - 1;
      key[i] = keys + at * depth;
      value[i] = values + at * depth;
    }
    return true;
  }

  void alone(const Cache&, int64_t) {}
};

}  // namespace gb
