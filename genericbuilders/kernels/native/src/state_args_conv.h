// What the Python side packs for gb_causal_conv and gb_selective_scan: 64-bit fields only, in this order
// (genericbuilders/kernels/native/state_conv.py); and the rows' check and division into work.
// All tensors but the indices are float32; strides are in elements, and the last one is 1.
#pragma once

#include <cstdint>
#include <vector>

namespace gb {

struct StateRowsArgs {
  int64_t num_blocks, num_tokens, num_rows, num_chunks;
  const int32_t* query_start_loc;
  const int32_t* initial_state;
  const int32_t* row_chunks;
  const int32_t* chunk_start_loc;
  const int32_t* chunk_state;
};

struct ConvArgs {
  StateRowsArgs rows;
  int64_t threads, total_tokens, dim, width, silu;
  const float* x;
  int64_t x_token;
  const float* weight;
  int64_t weight_channel;
  const float* bias;  // may be null
  float* state;
  int64_t state_block, state_place;
  float* out;
};

struct SelectiveArgs {
  StateRowsArgs rows;
  int64_t threads, total_tokens, dim, state_size;
  const float* x;
  int64_t x_token;
  const float* dt;
  int64_t dt_token;
  const float* a;
  int64_t a_channel;
  const float* b;
  int64_t b_token;
  const float* c;
  int64_t c_token;
  const float* d;  // may be null
  float* state;
  int64_t state_block, state_channel;
  float* out;
};

// What is wrong with the rows, in the low bits of an entry point's result; the row or chunk is above them.
enum RowsFault : int64_t { kInitialBlock = 1, kRowChunks = 2, kChunkStart = 3, kRowStart = 4, kChunkBlock = 5 };

static inline int64_t rows_fault(RowsFault fault, int64_t place) { return (place << 3) | fault; }

// 0, or the first fault; whatever passes is safe to read and to write.
static inline int64_t check_rows(const StateRowsArgs& r) {
  if (r.row_chunks[0] < 0 || r.row_chunks[0] > r.num_chunks) return rows_fault(kRowChunks, 0);
  for (int64_t row = 0; row < r.num_rows; ++row) {
    if (r.row_chunks[row] > r.row_chunks[row + 1] || r.row_chunks[row + 1] > r.num_chunks)
      return rows_fault(kRowChunks, row);
    if (r.initial_state[row] < 0 || r.initial_state[row] >= r.num_blocks) return rows_fault(kInitialBlock, row);
  }
  const int32_t start = r.chunk_start_loc[r.row_chunks[0]];
  if (start < 0 || start > r.num_tokens) return rows_fault(kChunkStart, r.row_chunks[0]);
  for (int64_t chunk = r.row_chunks[0]; chunk < r.row_chunks[r.num_rows]; ++chunk) {
    if (r.chunk_start_loc[chunk] > r.chunk_start_loc[chunk + 1] || r.chunk_start_loc[chunk + 1] > r.num_tokens)
      return rows_fault(kChunkStart, chunk);
    if (r.chunk_state[chunk] < 0 || r.chunk_state[chunk] >= r.num_blocks) return rows_fault(kChunkBlock, chunk);
  }
  for (int64_t row = 0; row <= r.num_rows; ++row)
    if (r.query_start_loc[row] != r.chunk_start_loc[r.row_chunks[row]]) return rows_fault(kRowStart, row);
  return 0;
}

// The first rows of pieces of work, and the end: neighbours together until they have `tokens` tokens.
static inline std::vector<int64_t> group_rows(const StateRowsArgs& r, int64_t tokens) {
  std::vector<int64_t> first{0};
  for (int64_t row = 0; row < r.num_rows; ++row)
    if (r.query_start_loc[row + 1] - r.query_start_loc[first.back()] >= tokens || row + 1 == r.num_rows)
      first.push_back(row + 1);
  return first;
}

}  // namespace gb
