"""The indexer: how prefills are cut under a bound on scores, and that each token's positions are its best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_type

import numpy as np
import pytest
import torch
from attention_batches import int_rows, ints, make_batch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.adapter import BindError, BoundGroup, IndexAdapter
from genericbuilders.backends.index_plan import cut_queries
from genericbuilders.backends.indexer import INDEXER, IndexerInputs, IndexerMetadata, IndexerMetadataBuilder
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.engine.dummy_batch import dummy_batch
from genericbuilders.kernels.sparse import reference
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.sparse_config import IndexLayerConfig
from genericbuilders.specs import FullAttentionSpec, KVQuantMode, MLAAttentionSpec

LAYER = IndexLayerConfig(num_heads=3, head_size=4, topk=5, scale=0.5)
CONFIG = EngineConfig(max_model_len=64, max_num_seqs=8, layers={"l0": LAYER})
CPU = torch.device("cpu")


def spec_of(block_size: int = 4) -> MLAAttentionSpec:
    return MLAAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=4, dtype=torch.float32)


def bind(block_size: int = 4) -> BoundGroup[IndexerMetadata, MLAAttentionSpec]:
    return INDEXER.bind(spec_of(block_size), [INDEXER.layer("l0", LAYER)], CONFIG, CPU)


def build(common: CommonAttentionMetadata, block_size: int = 4, max_logits_bytes: int | None = None) -> IndexerMetadata:
    builder = IndexerMetadataBuilder(spec_of(block_size), ["l0"], CONFIG, CPU)
    if max_logits_bytes is not None:
        builder.max_logits_bytes = max_logits_bytes
    return builder.build(0, common)


def test_the_types_are_kept() -> None:
    assert_type(INDEXER, IndexAdapter[IndexerMetadata, MLAAttentionSpec, IndexerInputs])
    assert_type(bind().builder.build(0, make_batch([1], [3], 4)), IndexerMetadata)
    assert bind().cudagraph_support() is AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    assert bind().kv_cache_shape(7) == (7, 4, 4)
    assert bind().kv_cache_dtype() is torch.float32


def inputs_of(num_tokens: int, seed: int = 0) -> IndexerInputs:
    """Small integers, of which every sum is exact."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randint(-2, 3, shape, generator=generator).float()

    return IndexerInputs(numbers(num_tokens, 3, 4), numbers(num_tokens, 4), numbers(num_tokens, 3))


def select(inputs: IndexerInputs, cache: Tensor, metadata: IndexerMetadata) -> Tensor:
    return INDEXER.layer("l0", LAYER).impl.forward(inputs, kv_cache=cache, attn_metadata=metadata)


def check(rows: Sequence[tuple[int, int]], block_size: int, max_logits_bytes: int | None, seed: int = 0) -> None:
    """The whole batch at once, by the reference, selects what the chunks do."""
    common = make_batch([new for new, _ in rows], [old for _, old in rows], block_size)
    inputs = inputs_of(common.num_actual_tokens, seed)
    cache = torch.randint(-2, 3, (1 + max([0, *ints(common.block_table_tensor.flatten())]), block_size, 4)).float()
    metadata = build(common, block_size, max_logits_bytes)
    got = select(inputs, cache, metadata)
    for token, slot in enumerate(ints(common.slot_mapping)):
        assert torch.equal(cache[slot // block_size, slot % block_size], inputs.key[token])
    expected = reference.select_topk(
        inputs.query,
        inputs.weights,
        cache,
        query_start_loc=common.query_start_loc,
        seq_lens=common.seq_lens,
        block_table=common.block_table_tensor,
        scale=0.5,
        topk=5,
    )
    assert torch.equal(got, expected)


@given(
    decodes=st.lists(st.integers(0, 30), max_size=3),
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=4),
    block_size=st.sampled_from([1, 4, 7]),
    max_logits_bytes=st.sampled_from([1, 60, 400, None]),
    seed=st.integers(0, 99),
)
def test_chunks_select_what_the_whole_does(
    decodes: list[int], rows: list[tuple[int, int]], block_size: int, max_logits_bytes: int | None, seed: int
) -> None:
    check([*[(1, old) for old in decodes], *rows], block_size, max_logits_bytes, seed)


@given(
    rows=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=8),
    max_logits=st.integers(0, 500),
    topk=st.integers(1, 30),
)
def test_pieces_cover_each_token_once_and_keep_within_the_bound(
    rows: list[tuple[int, int]], max_logits: int, topk: int
) -> None:
    counts = np.array([new for new, _ in rows], dtype=np.int32)
    lengths = np.array([new + old if new else 0 for new, old in rows], dtype=np.int32)
    covered: list[tuple[int, int]] = []
    for piece in cut_queries(counts, lengths, max_logits, topk):
        assert piece.counts.sum() > 0
        logits = len(piece.counts) * int(piece.counts.max()) * int(piece.lengths.max())
        assert logits <= max_logits or ints(piece.counts) == [1]
        assert len(piece.counts) == 1 or logits <= 2 * int((piece.counts * piece.lengths).sum())
        for offset, (count, length) in enumerate(zip(ints(piece.counts), ints(piece.lengths), strict=True)):
            row = piece.row + offset
            covered += [(row, piece.skipped + token) for token in range(count)]
            # A row sees as far as its last token of the piece.
            assert not count or length == int(lengths[row]) - int(counts[row]) + piece.skipped + count
    assert covered == [(row, token) for row, (new, _) in enumerate(rows) for token in range(new)]


def test_the_bound_is_kept_to_the_last_score() -> None:
    """A row of 3 tokens and 7 keys has 21 scores, padded or not; two of them have 42."""
    one, two = np.array([3]), np.array([3, 3])
    assert [len(cut_queries(one, np.array([7]), bound, 1)) for bound in (20, 21)] == [2, 1]
    assert [len(cut_queries(two, np.array([7, 7]), bound, 1)) for bound in (41, 42)] == [2, 1]


def test_a_long_prefill_is_cut_where_the_bound_says() -> None:
    """10 tokens behind 6, at most 50 scores: 4 x 10, 3 x 13, 3 x 16."""
    metadata = build(make_batch([1, 10, 2], [20, 6, 9], 4), max_logits_bytes=200)
    assert (metadata.num_decodes, metadata.num_decode_tokens, metadata.num_prefills) == (1, 1, 2)
    assert metadata.decode is not None
    assert ints(metadata.decode.seq_lens) == [21]
    chunks = metadata.chunks
    assert [(chunk.token_start, chunk.token_end) for chunk in chunks] == [(1, 5), (5, 8), (8, 11), (11, 13)]
    assert [chunk.max_seq_len for chunk in chunks] == [10, 13, 16, 11]
    assert [chunk.logits_bytes for chunk in chunks] == [160, 156, 192, 88]
    assert [ints(chunk.query_start_loc) for chunk in chunks] == [[0, 4], [0, 3], [0, 3], [0, 2]]
    check([(1, 20), (10, 6), (2, 9)], 4, 200)


def test_alike_prefills_share_a_chunk_and_a_long_one_does_not_join_them() -> None:
    chunks = build(make_batch([4, 4, 3, 2], [8, 8, 9, 50], 4)).chunks
    assert [ints(chunk.seq_lens) for chunk in chunks] == [[12, 12, 12], [52]]
    # Of what selects all, nothing is scored: it stays apart from what is.
    chunks = build(make_batch([2, 4, 4, 6], [0, 1, 1, 0], 4)).chunks
    assert [ints(chunk.seq_lens) for chunk in chunks] == [[2, 5, 5], [6]]


def test_one_token_alone_may_exceed_the_bound() -> None:
    chunks = build(make_batch([2], [18], 4), max_logits_bytes=4).chunks
    assert [(chunk.token_end - chunk.token_start, chunk.logits_bytes) for chunk in chunks] == [(1, 76), (1, 80)]
    check([(2, 18)], 4, 4)


def test_case_20_a_capture_and_chunks_without_tokens_select_nothing() -> None:
    """All sequence lengths 0, then a chunk of which no query token is left."""
    common = make_batch([1, 1, 1], [0, 4, 9], 4)
    zero = torch.zeros(3, dtype=torch.int32)
    table = torch.full_like(common.block_table_tensor, 10**6)
    capture = replace(
        common, seq_lens=zero, seq_lens_cpu=zero, max_seq_len=0, num_computed_tokens_cpu=zero, block_table_tensor=table
    )
    inputs = inputs_of(3)
    silent = replace(capture, slot_mapping=torch.full((3,), -1))
    cache = torch.zeros(1, 4, 4)
    for metadata in (build(silent), bind().builder.build_for_cudagraph_capture(silent)):
        assert int_rows(select(inputs, cache, metadata)) == [[-1] * 5] * 3
    chunk = build(make_batch([3], [7], 4)).chunks[0]
    nobody = replace(chunk, token_end=chunk.token_start, query_start_loc=zero[:2], max_query_len=0)
    metadata = replace(build(silent), decode=None, chunks=(nobody,))
    assert int_rows(select(inputs, cache, metadata)) == [[-1] * 5] * 3
    # Rows of prefills without any token make no chunk.
    empty = build(make_batch([2, 0, 0], [3, 9, 0], 4))
    assert [(each.token_start, each.token_end) for each in empty.chunks] == [(0, 2)]
    assert build(make_batch([0, 0], [3, 9], 4)).chunks == ()


def test_a_graph_s_dummy_batch_reads_the_null_block_only() -> None:
    group = bind()
    common = dummy_batch(CONFIG, group.spec, 4, 1, CPU)
    metadata = group.builder.build_for_cudagraph_capture(common)
    out = select(inputs_of(4), torch.zeros(1, 4, 4), metadata)
    assert int_rows(out) == [[0, 1, 2, 3, 4]] * 4


def test_empty_batches_and_tokens_of_padding() -> None:
    empty = make_batch([], [], 4)
    assert select(inputs_of(0), torch.zeros(1, 4, 4), build(empty)).shape == (0, 5)
    common = make_batch([1, 3, 0], [2, 6, 0], 4)
    cache = torch.zeros(12, 4, 4)
    padded = replace(common, slot_mapping=torch.cat((common.slot_mapping, torch.tensor([-1, -1]))))
    out = select(inputs_of(6), cache, build(padded))
    assert int_rows(out[4:]) == [[-1] * 5] * 2
    assert ints(out[0]) == [0, 1, 2, -1, -1]


def test_stale_rows_are_nobody_s_keys() -> None:
    """A row of padding behind has no tokens, whatever its length says."""
    common = make_batch([4, 0], [6, 30], 4)
    assert [ints(chunk.seq_lens) for chunk in build(common).chunks] == [[10, 0]]
    between = build(make_batch([4, 4, 0, 4], [6, 6, 12, 6], 4)).chunks
    assert [(ints(chunk.seq_lens), chunk.max_seq_len) for chunk in between] == [([10, 10, 0, 10], 10)]


def test_case_13_another_group_selects_in_its_own_blocks() -> None:
    common = make_batch([1, 6, 2], [6, 9, 1], 4)
    group = bind()
    group_builder = IndexerMetadataBuilder(spec_of(), ["l0"], CONFIG, CPU)
    group_builder.max_logits_bytes = 100
    metadata = group_builder.build(0, common)
    other = common.block_table_tensor + 10
    moved = group.update_block_table(metadata, other, common.slot_mapping + 40)
    rebuilt = group_builder.build(0, common.for_group(other, common.slot_mapping + 40))
    assert moved.decode is not None
    assert torch.equal(moved.decode.block_table, other[:1])
    assert len(moved.chunks) > 2
    for mine, theirs in zip(moved.chunks, rebuilt.chunks, strict=True):
        assert torch.equal(mine.block_table, theirs.block_table)
    assert torch.equal(moved.slot_mapping, common.slot_mapping + 40)


def test_bad_input_is_refused() -> None:
    layer = [INDEXER.layer("l0", LAYER)]
    with pytest.raises(ValueError, match="layer 'l0' has keys of 4 elements, but its cache is made for 20"):
        INDEXER.bind(replace(spec_of(), head_size=20), layer, CONFIG, CPU)
    with pytest.raises(ValueError, match="one plain vector a token for all heads"):
        INDEXER.bind(replace(spec_of(), num_kv_heads=2), layer, CONFIG, CPU)
    with pytest.raises(ValueError, match="without a window or a quantised cache"):
        INDEXER.bind(replace(spec_of(), kv_quant_mode=KVQuantMode.FP8_PER_TENSOR), layer, CONFIG, CPU)
    full = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=4, dtype=torch.float32)
    with pytest.raises(BindError, match=r"adapter 'indexer' takes MLAAttentionSpec, but layers .* a FullAttentionSpec"):
        INDEXER.bind_any(full, layer, CONFIG, CPU)
    wrong = replace(CONFIG, layers={"l0": AttentionLayerConfig(4, 1, 4, 1.0)})
    with pytest.raises(ValueError, match="layer 'l0' is described by a AttentionLayerConfig; it is no indexer"):
        INDEXER.bind(spec_of(), layer, wrong, CPU)
    with pytest.raises(ValueError, match=r"layer 'l0' is not in EngineConfig.layers; it is no indexer"):
        INDEXER.bind(spec_of(), layer, replace(CONFIG, layers={}), CPU)
    two = replace(CONFIG, layers={"l0": LAYER, "l1": replace(LAYER, topk=6)})
    with pytest.raises(ValueError, match=r"layers of one group must share topk; got {5: 'l0', 6: 'l1'}"):
        INDEXER.bind(spec_of(), [*layer, INDEXER.layer("l1", LAYER)], two, CPU)
    for name, sizes in {"num_heads": (0, 4, 5), "head_size": (3, 0, 5), "topk": (3, 4, 0)}.items():
        with pytest.raises(ValueError, match=f"{name} is 0; it must be at least 1"):
            IndexLayerConfig(*sizes, scale=0.5)
    narrow = make_batch([2, 3], [4, 11], 4)
    narrow = replace(narrow, block_table_tensor=narrow.block_table_tensor[:, :2])
    with pytest.raises(
        ValueError, match="block_table has 2 columns, and a sequence of 14 tokens in blocks of 4 needs 4"
    ):
        build(narrow)
    common = make_batch([2], [0], 4)
    metadata, cache = build(common), torch.zeros(2, 4, 4)
    with pytest.raises(ValueError, match=r"query is \(2, 2, 4\) and key \(2, 4\); the layer has 3 heads of size 4"):
        select(replace(inputs_of(2), query=torch.zeros(2, 2, 4)), cache, metadata)
    with pytest.raises(ValueError, match=r"query is \(2, 3, 4\) and key \(1, 4\)"):
        select(replace(inputs_of(2), key=torch.zeros(1, 4)), cache, metadata)
