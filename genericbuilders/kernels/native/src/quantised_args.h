// Quantised caches: a slot is one token's key and value in one head, as bytes (genericbuilders/kernels/quant/formats.py).
// What the Python side packs: 64-bit fields only, in this order (genericbuilders/kernels/native/quantised.py).
#pragma once

#include "args.h"

namespace gb {

enum Coding : int64_t { kFloat8 = 0, kInt8 = 1, kLevels = 2 };

// Where a slot has a vector, and how to read and write it. Offsets are in bytes from the slot's start.
struct VectorCode {
  int64_t coding, bits, elements, factor, factor_bytes;  // factor_bytes: 4 float32, 2 float16, 0 for none
  double factor_of_all;                                  // where vectors have none of their own
  const float* levels;                                   // [16], zeros behind those that there are; this and what
  const double* thresholds;                              // follows for kLevels alone: [2 ** bits - 1]
  const double* turn;                                    // [head_size][head_size]: the rotation, transposed
};

struct QuantisedArgs {
  AttentionArgs attention;  // key and value both point at the slots, and strides are in bytes
  VectorCode key, value;
};

struct QuantisedWriteArgs {
  int64_t num_blocks, block_size, num_kv_heads, head_size, slot_bytes;
  uint8_t* slots;
  int64_t block, token, head;  // strides in bytes
  int64_t threads, dtype, num_tokens;
  const void* key;
  int64_t key_token, key_head;
  const void* value;
  int64_t value_token, value_head;
  const int64_t* slot_mapping;
  VectorCode key_code, value_code;
};

}  // namespace gb
