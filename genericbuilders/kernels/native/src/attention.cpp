// Paged attention: plans a batch's rows into pieces of work and shares them between threads.
#include <atomic>
#include <memory>
#include <vector>

#include "args.h"
#include "decode.h"
#include "prefill.h"
#include "quantised.h"
#include "vec.h"

namespace gb {
namespace {

// Multiply-adds below which one thread is quicker than starting a second.
constexpr int64_t kWorthThreads = 1 << 16;

struct Tile {
  int64_t row, head, first, last;
};

// All splits of one row and head, or one split of them with a place for its result.
struct Piece {
  int64_t row, head, split, place;  // split -1: all of them
};

struct Plan {
  std::vector<Tile> tiles;
  std::vector<Piece> pieces;
  std::vector<Piece> merges;  // what has to be folded once all pieces are done
  int64_t places = 0;
  int64_t work = 0;
  int64_t tile_rows = 0;
  int64_t fault = 0;
};

Plan make_plan(const AttentionArgs& a, int threads) {
  Plan plan;
  const Cache& cache = a.cache;
  const int64_t heads = cache.num_kv_heads, group = a.num_heads / heads;
  const int64_t tile_tokens = group < kTileRows ? kTileRows / group : 1;
  int64_t decode_keys = 0, longest = 0, decodes = 0;
  for (int64_t row = 0; row < a.num_reqs; ++row) {
    const int64_t start = a.query_start_loc[row], count = a.query_start_loc[row + 1] - start;
    const int64_t length = a.seq_lens[row];
    if (count < 0 || start < 0 || start + count > a.num_tokens) {
      plan.fault = fault_at(kStarts, row);
      return plan;
    }
    if (!count || !length) continue;
    if (length < 0 || (a.causal && length < count)) {
      plan.fault = fault_at(kLength, row);
      return plan;
    }
    const int64_t base = a.key_start ? a.key_start[row] : 0;
    if (base < 0 || !cache.block_size ||
        (base + length + cache.block_size - 1) / cache.block_size > a.table_columns) {
      plan.fault = fault_at(kNarrowTable, row);
      return plan;
    }
    if (count == 1) {
      const int64_t keys = seen_from(a, length - 1, length).size();
      ++decodes;
      decode_keys += keys;
      longest = longest < keys ? keys : longest;
      plan.work += keys * a.num_heads * cache.head_size;
      continue;
    }
    // The last tiles see the most keys: they go first.
    for (int64_t last = count; last > 0;) {
      const int64_t first = (last - 1) / tile_tokens * tile_tokens;
      for (int64_t head = 0; head < heads; ++head) plan.tiles.push_back({row, head, first, last});
      plan.work += tile_span(a, row, first, last).size() * (last - first) * a.num_heads * cache.head_size;
      plan.tile_rows = (last - first) * group > plan.tile_rows ? (last - first) * group : plan.tile_rows;
      last = first;
    }
  }
  // Splits are worth their merge when one row would keep a thread busy after all others are done.
  const bool spread = longest * 4 * threads > decode_keys * heads && threads > 1;
  plan.pieces.reserve(decodes * heads);
  for (int64_t row = 0; row < a.num_reqs && decodes; ++row) {
    if (a.query_start_loc[row + 1] - a.query_start_loc[row] != 1 || !a.seq_lens[row]) continue;
    const int64_t splits = (seen_from(a, a.seq_lens[row] - 1, a.seq_lens[row]).size() + kSplit - 1) / kSplit;
    for (int64_t head = 0; head < heads; ++head) {
      if (!spread || splits == 1) {
        plan.pieces.push_back({row, head, -1, 0});
        continue;
      }
      plan.merges.push_back({row, head, splits, plan.places});
      for (int64_t split = 0; split < splits; ++split) plan.pieces.push_back({row, head, split, plan.places++});
    }
  }
  return plan;
}

// Zero what no row covers: padding tokens, and tokens of rows without a sequence.
void clear(const AttentionArgs& a, int64_t first, int64_t last, int64_t element) {
  for (int64_t token = first; token < last; ++token)
    for (int64_t head = 0; head < a.num_heads; ++head) {
      std::memset((char*)a.out + (token * a.out_token + head * a.out_head) * element, 0,
                  a.cache.value_head_size * element);
      write_lse(a, token, head, {kMinusInfinity, 0.0f});
    }
}

template <class T>
struct Decoder {
  typedef typename T::raw raw;
  const AttentionArgs& a;
  const int64_t group, depth, width;
  std::unique_ptr<float[]> partial_sums;
  std::vector<Running> partial;

  Decoder(const AttentionArgs& args, int64_t places)
      : a(args),
        group(args.num_heads / args.cache.num_kv_heads),
        depth(round_up(args.cache.head_size, kWide)),
        width(round_up(args.cache.value_head_size, kWide)),
        partial_sums(places ? new float[places * group * width] : nullptr),
        partial(places * group) {}

  int64_t scratch_floats() const { return group * (depth + 2 * width + 4) + kGroupStep * kSplit; }

  void read_query(int64_t row, int64_t head, float* query) const {
    const int size = (int)a.cache.head_size;
    const vf scale = splat((float)a.scale);
    const raw* q = (const raw*)a.query + (int64_t)a.query_start_loc[row] * a.query_token + head * group * a.query_head;
    for (int64_t g = 0; g < group; ++g, q += a.query_head)
      for (int d = 0; d < depth; d += kLanes)
        store(query + g * depth + d, d < size ? load_some<T>(q + d, size - d) * scale : vf{});
  }

  void write_out(int64_t row, int64_t head, const Running* state, const float* sums) const {
    const int size = (int)a.cache.value_head_size;
    const int64_t token = a.query_start_loc[row];
    raw* o = (raw*)a.out + token * a.out_token + head * group * a.out_head;
    for (int64_t g = 0; g < group; ++g, o += a.out_head) {
      const vf inverse = splat(inverse_total(state[g]));
      for (int d = 0; d < size; d += kLanes) store_some<T>(o + d, load(sums + g * width + d) * inverse, size - d);
      write_lse(a, token, head * group + g, state[g]);
    }
  }

  void reset(int64_t head, Running* state, float* sums) const {
    for (int64_t g = 0; g < group; ++g) state[g] = nothing_seen(a, head * group + g);
    std::memset(sums, 0, group * width * sizeof(float));
  }

  template <class Rows>
  Fault run(const Piece& piece, float* scratch, Rows& places) {
    float* query = scratch;
    float* sums = query + group * depth;
    float* split_sums = sums + group * width;
    float* scores = split_sums + group * width;
    Running* state = (Running*)(scores + kGroupStep * kSplit);
    Running* split_state = state + group;
    const int64_t row = piece.row, head = piece.head, length = a.seq_lens[row];
    const int32_t* table = a.block_table + row * a.table_row;
    const int64_t base = a.key_start ? a.key_start[row] : 0;
    const Span seen = seen_from(a, length - 1, length);
    const bool alone = piece.split < 0 && seen.size() <= kSplit;
    read_query(row, head, query);
    if (piece.split < 0) reset(head, state, sums);
    int64_t first = piece.split < 0 ? seen.first : seen.first + piece.split * kSplit;
    const int64_t end = piece.split < 0 || first + kSplit > seen.last ? seen.last : first + kSplit;
    for (; first < end; first += kSplit) {
      const Span split = {first, first + kSplit < end ? first + kSplit : end};
      if (!places.find(a.cache, table, base, head, split)) return kBlockRange;
      if (alone) places.alone(a.cache, head);
      SplitWork<T> work = {a, places, first - (length - 1), query, depth, scores, split_sums, width};
      if (piece.split >= 0) {
        work.sums = partial_sums.get() + piece.place * group * width;
        attend_split<T>(work, head * group, (int)group, &partial[piece.place * group]);
        return kNone;
      }
      attend_split<T>(work, head * group, (int)group, split_state);
      for (int64_t g = 0; g < group; ++g)
        fold(&state[g], sums + g * width, split_state[g], split_sums + g * width, width);
    }
    write_out(row, head, state, sums);
    return kNone;
  }

  void merge(const Piece& piece, float* scratch) {
    float* sums = scratch;
    Running* state = (Running*)(sums + group * width);
    reset(piece.head, state, sums);
    for (int64_t place = piece.place; place < piece.place + piece.split; ++place)
      for (int64_t g = 0; g < group; ++g)
        fold(&state[g], sums + g * width, partial[place * group + g],
             partial_sums.get() + (place * group + g) * width, width);
    write_out(piece.row, piece.head, state, sums);
  }
};

// `more` is what each thread's Rows are made of.
template <class T, class Rows = SplitRows<T>, class... More>
int64_t attend(const AttentionArgs& a, const More&... more) {
  const int threads = (int)a.threads;
  Plan plan = make_plan(a, threads);
  if (plan.fault) return plan.fault;
  for (int64_t row = 0; row < a.num_reqs; ++row)
    if (!a.seq_lens[row]) clear(a, a.query_start_loc[row], a.query_start_loc[row + 1], sizeof(typename T::raw));
  clear(a, a.num_reqs ? a.query_start_loc[a.num_reqs] : 0, a.num_tokens, sizeof(typename T::raw));
  const int64_t num_tiles = plan.tiles.size(), num_pieces = plan.pieces.size(), num_merges = plan.merges.size();
  if (!num_tiles && !num_pieces) return 0;
  Decoder<T> decoder(a, plan.places);
  int64_t floats = num_pieces ? decoder.scratch_floats() : 0;
  if (num_tiles) {
    const int64_t needed = TileScratch::floats(plan.tile_rows, a.cache.head_size, a.cache.value_head_size);
    floats = needed > floats ? needed : floats;
  }
  // A row's heads stay together where there are enough rows: one head's work brings in the next head's keys.
  const int64_t heads = a.cache.num_kv_heads;
  const int chunk = num_pieces >= heads * threads * 4 ? (int)heads : 1;
  std::atomic<int64_t> fault{0};
#pragma omp parallel num_threads(threads) if (plan.work > kWorthThreads)
  {
    std::unique_ptr<float[]> scratch(new float[floats]);
    Rows places{more...};
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t i = 0; i < num_tiles; ++i) {
      const Tile& t = plan.tiles[i];
      TileScratch s(scratch.get(), plan.tile_rows, a.cache.head_size, a.cache.value_head_size);
      const Fault found = attend_tile<T>(a, t.row, t.head, t.first, t.last, s, places);
      if (found) fault = fault_at(found, t.row);
    }
#pragma omp for schedule(dynamic, chunk)
    for (int64_t i = 0; i < num_pieces; ++i) {
      const Fault found = decoder.run(plan.pieces[i], scratch.get(), places);
      if (found) fault = fault_at(found, plan.pieces[i].row);
    }
    if (num_merges && !fault) {
#pragma omp for schedule(dynamic, 1)
      for (int64_t i = 0; i < num_merges; ++i) decoder.merge(plan.merges[i], scratch.get());
    }
  }
  return fault;
}

}  // namespace
}  // namespace gb

extern "C" int64_t gb_paged_attention(const gb::AttentionArgs* args) {
  switch (args->dtype) {
    case gb::kFloat32: return gb::attend<gb::Float32>(*args);
    case gb::kBFloat16: return gb::attend<gb::BFloat16>(*args);
    default: return gb::attend<gb::Float16>(*args);
  }
}

// Queries and results are float32.
extern "C" int64_t gb_quantised_attention(const gb::QuantisedArgs* args) {
  return gb::attend<gb::Float32, gb::QuantisedRows>(args->attention, *args);
}
