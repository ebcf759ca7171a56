// What the Python side packs: 64-bit fields only, in this order (genericbuilders/kernels/native/calls.py).
// Strides are in elements.
#pragma once

#include <cstdint>

namespace gb {

enum Dtype : int64_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

// What went wrong, in the low bits of an entry point's result; the row is above them.
enum Fault : int64_t { kNone = 0, kNarrowTable = 1, kBlockRange = 2, kStarts = 3, kLength = 4, kSlotRange = 5 };

static inline int64_t fault_at(Fault fault, int64_t row) { return (row << 3) | fault; }

struct Cache {
  int64_t num_blocks, block_size, num_kv_heads, head_size, value_head_size;
  void* key;
  int64_t key_block, key_token, key_head;
  void* value;
  int64_t value_block, value_token, value_head;
};

struct AttentionArgs {
  Cache cache;
  int64_t threads, dtype, causal, num_reqs, num_tokens, num_heads;
  const void* query;
  int64_t query_token, query_head;
  void* out;
  int64_t out_token, out_head;
  const int32_t* query_start_loc;
  const int32_t* seq_lens;
  const int32_t* block_table;
  int64_t table_row, table_columns;
  const int32_t* key_start;  // where a row's keys begin in its blocks; may be null: at their beginning
  int64_t window;            // 0: none
  const float* alibi_slopes;  // may be null, and so may what follows
  const float* sinks;
  float* lse;
  int64_t lse_token, lse_head;
  double scale, soft_cap;  // soft_cap 0: none
};

struct RopeArgs {
  Cache cache;
  int64_t threads, dtype, num_tokens, num_heads, rotary_dim, rotary_is_float32;
  const void* query;
  int64_t query_token, query_head;
  void* out;
  int64_t out_token, out_head;
  const void* key;
  int64_t key_token, key_head;
  const void* value;
  int64_t value_token, value_head;
  const void* cos;
  int64_t cos_token;
  const void* sin;
  int64_t sin_token;
  const int64_t* slot_mapping;
};

struct NormArgs {
  int64_t threads, dtype, num_tokens, size;
  const void* hidden;
  int64_t hidden_token;
  void* residual;  // may be null
  int64_t residual_token;
  const void* weight;
  void* out;
  int64_t out_token;
  double epsilon;
};

struct GatedArgs {
  int64_t threads, dtype, activation, num_tokens, size;  // activation: 0 silu, 1 gelu (tanh)
  const void* gate_up;
  int64_t gate_up_token;
  void* out;
  int64_t out_token;
};

}  // namespace gb
