// Writing to quantised caches. A vector's bytes depend on that vector alone.
#include <cmath>
#include <cstring>
#include <memory>

#include "quantised_args.h"
#include "vec.h"

namespace gb {
namespace {

// Vectors below which one thread is quicker than starting a second.
constexpr int64_t kWorthThreads = 64;

// The nearest float8 e4m3, ties to even; what is too large is cut off, and no number stays none.
GB_INLINE uint8_t to_float8(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
  float size = std::fabs(x);
  if (size != size) return sign | 0x7f;
  size = size > 448.0f ? 448.0f : size;
  if (size < 0.015625f) {
    // The sum's last place is float8's smallest number, so that adding rounds.
    const float sum = size + 16384.0f;
    std::memcpy(&bits, &sum, sizeof bits);
    return sign | (uint8_t)(bits - 0x46800000u);
  }
  std::memcpy(&bits, &size, sizeof bits);
  bits += ((uint32_t)(7 - 127) << 23) + 0x7ffffu + (bits >> 20 & 1u);
  return sign | (uint8_t)(bits >> 20);
}

GB_INLINE uint8_t to_int8(float x) {
  float whole = std::nearbyint(x);
  whole = whole > 127.0f ? 127.0f : whole < -127.0f ? -127.0f : whole;
  return whole == whole ? (uint8_t)(int8_t)whole : 0;
}

GB_INLINE void put_factor(const VectorCode& code, double factor, uint8_t* slot) {
  if (code.factor_bytes == 4) {
    const float single = (float)factor;
    std::memcpy(slot + code.factor, &single, sizeof single);
  } else {
    // The largest float16.
    const float single = (float)(factor > 65504.0 ? 65504.0 : factor);
    uint16_t half;
    store_part<Float16>(&half, splat(single), 1);
    std::memcpy(slot + code.factor, &half, sizeof half);
  }
}

void put_scaled(const VectorCode& code, const float* x, int size, uint8_t* slot) {
  uint8_t* out = slot + code.elements;
  const bool is_float8 = code.coding == kFloat8;
  float divisor = (float)code.factor_of_all;
  if (code.factor_bytes) {
    float largest = 0.0f;
    for (int d = 0; d < size; ++d) {
      const float a = std::fabs(x[d]);
      largest = a > largest || a != a ? a : largest;
    }
    const float factor = largest / (is_float8 ? 448.0f : 127.0f);
    put_factor(code, factor, slot);
    divisor = factor == 0.0f ? 1.0f : factor;
  }
  if (is_float8) {
    for (int d = 0; d < size; ++d) out[d] = to_float8(x[d] / divisor);
  } else {
    for (int d = 0; d < size; ++d) out[d] = to_int8(x[d] / divisor);
  }
}

// In float64, as the portable form: only so do both choose the same codes. `turned`: `size` numbers to work with.
void put_levels(const VectorCode& code, const float* x, int size, double* turned, uint8_t* slot) {
  double square = 0.0;
  for (int d = 0; d < size; ++d) square += (double)x[d] * x[d];
  const double length = std::sqrt(square), divisor = length == 0.0 ? 1.0 : length, spread = std::sqrt((double)size);
  for (int i = 0; i < size; ++i) turned[i] = 0.0;
  for (int j = 0; j < size; ++j) {
    const double* column = code.turn + (int64_t)j * size;
    const double element = x[j] / divisor;
    for (int i = 0; i < size; ++i) turned[i] += element * column[i];
  }
  const int bits = (int)code.bits, count = (1 << bits) - 1;
  uint8_t* out = slot + code.elements;
  uint32_t word = 0;
  int filled = 0;
  double kept = 0.0;
  for (int i = 0; i < size; ++i) {
    const double number = turned[i] * spread;
    uint32_t level = 0;
    for (int t = 0; t < count; ++t) level += !(code.thresholds[t] >= number);
    kept += (double)code.levels[level] * code.levels[level];
    word |= level << filled;
    filled += bits;
    for (; filled >= 8; filled -= 8, word >>= 8) *out++ = (uint8_t)word;
  }
  if (filled) *out = (uint8_t)word;
  put_factor(code, length / std::sqrt(kept), slot);
}

template <class T>
void put_vector(const VectorCode& code, const typename T::raw* vector, int size, float* x, double* turned,
                uint8_t* slot) {
  for (int d = 0; d < size; d += kLanes) store(x + d, load_some<T>(vector + d, size - d));
  if (code.coding == kLevels) {
    put_levels(code, x, size, turned, slot);
  } else {
    put_scaled(code, x, size, slot);
  }
}

template <class T>
int64_t write(const QuantisedWriteArgs& a) {
  typedef typename T::raw raw;
  const int64_t num_slots = a.num_blocks * a.block_size, vectors = a.num_tokens * a.num_kv_heads;
  for (int64_t i = 0; i < a.num_tokens; ++i)
    if (a.slot_mapping[i] >= num_slots) return fault_at(kSlotRange, i);
  const int size = (int)a.head_size;
#pragma omp parallel num_threads((int)a.threads) if (vectors > kWorthThreads)
  {
    std::unique_ptr<float[]> x(new float[round_up(size, kLanes)]);
    std::unique_ptr<double[]> turned(new double[size]);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < vectors; ++i) {
      const int64_t token = i / a.num_kv_heads, head = i % a.num_kv_heads, place = a.slot_mapping[token];
      if (place < 0) continue;
      uint8_t* slot = a.slots + place / a.block_size * a.block + place % a.block_size * a.token + head * a.head;
      slot[a.slot_bytes - 1] = 0;  // what makes a slot's bytes even, if anything
      put_vector<T>(a.key_code, (const raw*)a.key + token * a.key_token + head * a.key_head, size, x.get(),
                    turned.get(), slot);
      put_vector<T>(a.value_code, (const raw*)a.value + token * a.value_token + head * a.value_head, size, x.get(),
                    turned.get(), slot);
    }
  }
  return 0;
}

}  // namespace
}  // namespace gb

extern "C" int64_t gb_quantised_write(const gb::QuantisedWriteArgs* args) {
  switch (args->dtype) {
    case gb::kFloat32: return gb::write<gb::Float32>(*args);
    case gb::kBFloat16: return gb::write<gb::BFloat16>(*args);
    default: return gb::write<gb::Float16>(*args);
  }
}
