// What the Python side packs for gb_decay_scan and gb_delta_scan: 64-bit fields only, in this order
// (genericbuilders/kernels/native/state_scan.py).
// All tensors but the indices are float32; strides are in elements, and those of sizes are 1.
#pragma once

#include "state_args_conv.h"

namespace gb {

struct ScanArgs {
  StateRowsArgs rows;
  int64_t threads, total_tokens, num_heads, num_groups, value_size, key_size;
  const float* query;
  int64_t query_token, query_group;
  const float* key;
  int64_t key_token, key_group;
  const float* value;
  int64_t value_token, value_head;
  const float* log_decay;
  int64_t log_decay_token, log_decay_head;
  const float* beta;  // null without the delta rule
  int64_t beta_token, beta_head;
  float* state;
  int64_t state_block, state_head, state_value;
  float* out;
};

}  // namespace gb
