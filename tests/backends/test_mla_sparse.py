"""Sparse latent attention: which rows are sparse, and that both ways give attention over what was selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_type

import pytest
import torch
from attention_batches import int_rows, ints, make_batch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.adapter import BindError, BoundGroup, LatentAdapter
from genericbuilders.backends.mla_sparse import (
    MLA_SPARSE,
    MLASparseInputs,
    MLASparseMetadata,
    MLASparseMetadataBuilder,
)
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import EngineConfig, LatentLayerConfig
from genericbuilders.engine.dummy_batch import dummy_batch
from genericbuilders.kernels.tolerance import compare
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.sparse_config import SparseLatentLayerConfig
from genericbuilders.specs import FullAttentionSpec, MLAAttentionSpec

TOPK = 6
LAYER = SparseLatentLayerConfig(3, 12, 6, 4, 5, 0.3, topk=TOPK)
CONFIG = EngineConfig(max_model_len=64, max_num_seqs=8, layers={"l0": LAYER})
CPU = torch.device("cpu")


def spec_of(block_size: int = 4) -> MLAAttentionSpec:
    return MLAAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=16, dtype=torch.float32)


def bind(block_size: int = 4) -> BoundGroup[MLASparseMetadata, MLAAttentionSpec]:
    return MLA_SPARSE.bind(spec_of(block_size), [MLA_SPARSE.layer("l0", LAYER)], CONFIG, CPU)


def build(
    common: CommonAttentionMetadata, block_size: int = 4, workspace_tokens: int = 1000, drafts: int = 0
) -> MLASparseMetadata:
    config = replace(CONFIG, num_speculative_tokens=drafts)
    builder = MLASparseMetadataBuilder(spec_of(block_size), ["l0"], config, CPU)
    builder.workspace_tokens = workspace_tokens
    return builder.build(0, common)


def places(tokens: Tensor | slice, total: int) -> list[int]:
    return ints(torch.arange(total)[tokens])


def test_the_types_are_kept() -> None:
    assert_type(MLA_SPARSE, LatentAdapter[MLASparseMetadata, MLAAttentionSpec, MLASparseInputs])
    assert_type(bind().builder.build(0, make_batch([1], [3], 4)), MLASparseMetadata)
    assert bind().cudagraph_support() is AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    assert bind().kv_cache_shape(7) == (7, 4, 16)


def inputs_of(common: CommonAttentionMetadata, seed: int, padding: int = 0) -> MLASparseInputs:
    """What a layer brings; the positions are random, up to each token's own."""
    generator = torch.Generator().manual_seed(seed)
    tokens = common.num_actual_tokens + padding
    selected = torch.full((tokens, TOPK), -1, dtype=torch.int32)
    for row in range(common.num_reqs):
        start, end = int(common.query_start_loc[row]), int(common.query_start_loc[row + 1])
        for token in range(start, end):
            seen = int(common.seq_lens[row]) - (end - token) + 1
            chosen = torch.randperm(seen, generator=generator)[:TOPK].sort().values
            selected[token, : len(chosen)] = chosen.int()
    return MLASparseInputs(
        torch.randn(tokens, 3, 10, generator=generator),
        torch.randn(tokens, 16, generator=generator),
        torch.randn(3, 11, 12, generator=generator) * 0.3,
        selected,
    )


def attend_expanded(
    common: CommonAttentionMetadata, inputs: MLASparseInputs, cache: Tensor, dtype: torch.dtype
) -> Tensor:
    """By definition: every selected token's key and value expanded, one token at a time."""
    out = torch.zeros(len(inputs.query), 3, 5, dtype=dtype)
    size = cache.shape[1]
    for row in range(common.num_reqs):
        for token in range(int(common.query_start_loc[row]), int(common.query_start_loc[row + 1])):
            chosen = [place for place in ints(inputs.selected[token]) if place >= 0]
            latent = torch.stack(
                [cache[int(common.block_table_tensor[row, place // size]), place % size] for place in chosen]
            ).to(dtype)
            up = torch.einsum("tl,hdl->thd", latent[:, :12], inputs.kv_up.to(dtype))
            key = torch.cat((up[..., :6], latent[:, None, 12:].expand(-1, 3, -1)), -1)
            weights = (torch.einsum("hd,khd->hk", inputs.query[token].to(dtype), key) * 0.3).softmax(-1)
            out[token] = torch.einsum("hk,khd->hd", weights, up[..., 6:])
    return out


def check(
    common: CommonAttentionMetadata, block_size: int, workspace_tokens: int = 1000, seed: int = 0, drafts: int = 0
) -> None:
    inputs = inputs_of(common, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    blocks = 1 + max([0, *ints(common.block_table_tensor.flatten())])
    cache = torch.randn(blocks, block_size, 16, generator=generator)
    metadata = build(common, block_size, workspace_tokens, drafts)
    got = MLA_SPARSE.layer("l0", LAYER).impl.forward(inputs, kv_cache=cache, attn_metadata=metadata)
    for token, slot in enumerate(ints(common.slot_mapping)):
        assert torch.equal(cache[slot // block_size, slot % block_size], inputs.latent[token])
    working = attend_expanded(common, inputs, cache, torch.float32)
    exact = attend_expanded(common, inputs, cache, torch.float64)
    comparison = compare(got, working, exact)
    assert comparison.passed, comparison


def batch(rows: Sequence[tuple[int, int]], block_size: int = 4) -> CommonAttentionMetadata:
    return make_batch([new for new, _ in rows], [old for _, old in rows], block_size)


@given(
    decodes=st.lists(st.integers(0, 20), max_size=3),
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=5),
    short=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=2),
    block_size=st.sampled_from([1, 4, 7]),
    workspace_tokens=st.sampled_from([1, 5, 1000]),
    seed=st.integers(0, 99),
    drafts=st.integers(0, 3),
)
def test_it_attends_over_what_was_selected(
    decodes: list[int],
    rows: list[tuple[int, int]],
    short: list[tuple[int, int]],
    block_size: int,
    workspace_tokens: int,
    seed: int,
    drafts: int,
) -> None:
    every = [*[(1, old) for old in decodes], *rows, *short]
    check(batch(every, block_size), block_size, workspace_tokens, seed, drafts)


@pytest.mark.parametrize(
    ("rows", "sparse", "dense", "decoded"),
    [
        # Up to 6 tokens everything is selected.
        ([(1, 5), (4, 2)], None, [1, 2, 3, 4], True),
        ([(1, 6), (1, 0)], [0, 1], [], False),
        # Rows without tokens have no say, however long they are.
        ([(1, 2), (0, 30)], None, [], True),
        ([(2, 2), (0, 30)], None, [0, 1], False),
        ([(1, 2), (1, 6), (3, 3)], [0, 1], [2, 3, 4], False),
        ([(7, 0)], [0, 1, 2, 3, 4, 5, 6], [], False),
        ([(1, 2), (3, 9)], [1, 2, 3], [], True),
        ([(2, 0), (3, 9), (2, 4)], [2, 3, 4], [0, 1, 5, 6], False),
        ([(1, 9), (2, 0), (3, 9), (0, 30), (2, 1)], [0, 3, 4, 5], [1, 2, 6, 7], False),
    ],
)
def test_rows_longer_than_topk_are_sparse(
    rows: list[tuple[int, int]], sparse: list[int] | None, dense: list[int], decoded: bool
) -> None:
    common = batch(rows)
    metadata = build(common)
    found = None if metadata.sparse is None else places(metadata.sparse.tokens, common.num_actual_tokens)
    assert (found, places(metadata.dense, common.num_actual_tokens)) == (sparse, dense)
    assert (metadata.decode is not None, metadata.prefill is not None) == (decoded, bool(dense))
    check(common, 4)


def test_short_rows_between_long_ones_keep_their_own_context() -> None:
    metadata = build(batch([(2, 3), (3, 9), (2, 4), (4, 0)]), workspace_tokens=8)
    assert metadata.prefill is not None
    assert ints(metadata.prefill.query_start_loc) == [0, 2, 2, 4, 8]
    assert [(ints(chunk.starts), ints(chunk.lengths)) for chunk in metadata.prefill.context] == [
        ([0, 0, 0, 0], [3, 0, 4, 0])
    ]


def test_tokens_know_their_rows() -> None:
    metadata = build(batch([(1, 9), (2, 0), (0, 8), (3, 9), (2, 1)]))
    assert metadata.sparse is not None
    assert ints(metadata.sparse.rows) == [0, 3, 3, 3]
    slots = metadata.sparse.slots(torch.tensor([[0, 9, -1]] + [[11, -1, -1]] * 3, dtype=torch.int32))
    table = metadata.block_table
    # No token has selected more than the longest sequence has.
    assert metadata.sparse.slots(torch.full((4, 20), -1, dtype=torch.int32)).shape == (4, 12)
    first, third, last = int(table[0, 0]) * 4, int(table[0, 2]) * 4 + 1, int(table[3, 2]) * 4 + 3
    assert int_rows(slots) == [[first, third, -1]] + [[last, -1, -1]] * 3


def test_a_graph_s_dummy_batch_is_sparse_and_reads_the_null_block_only() -> None:
    group = bind()
    common = dummy_batch(CONFIG, group.spec, 4, 1, CPU)
    metadata = group.builder.build_for_cudagraph_capture(common)
    assert metadata.decode is None
    assert metadata.sparse is not None
    inputs = replace(inputs_of(batch([(1, 63)] * 4), 0), selected=torch.arange(TOPK, dtype=torch.int32).expand(4, -1))
    cache = torch.zeros(1, 4, 16)
    out = MLA_SPARSE.layer("l0", LAYER).impl.forward(inputs, kv_cache=cache, attn_metadata=metadata)
    assert torch.equal(out, torch.zeros(4, 3, 5))


def test_padding_and_empty_batches_give_zeros() -> None:
    """Two rows of padding, whose lengths are stale, and two tokens behind the batch's."""
    common = batch([(1, 9), (1, 2), (0, 30), (0, 0)])
    padded = replace(common, slot_mapping=torch.cat((common.slot_mapping, torch.tensor([-1, -1]))))
    inputs = inputs_of(common, 3, padding=2)
    cache = torch.full((20, 4, 16), 0.5)
    impl = MLA_SPARSE.layer("l0", LAYER).impl
    metadata = build(padded)
    assert metadata.sparse is not None
    out = impl.forward(inputs, kv_cache=cache, attn_metadata=metadata)
    assert torch.equal(out[2:], torch.zeros(2, 3, 5))
    assert bool((out[:2] != 0).all())
    # In a graph, tokens of padding are taken with the others.
    whole = replace(metadata, sparse=replace(metadata.sparse, tokens=slice(0, 4)))
    assert torch.equal(impl.forward(inputs, kv_cache=cache, attn_metadata=whole), out)
    empty = batch([])
    assert impl.forward(inputs_of(empty, 0), kv_cache=cache, attn_metadata=build(empty)).shape == (0, 3, 5)
    check(batch([(0, 9), (0, 2)]), 4)


def test_unselected_and_unwritten_slots_are_never_read() -> None:
    common = batch([(1, 9), (2, 10)])
    inputs = inputs_of(common, 1)
    cache = torch.full((20, 4, 16), torch.nan)
    for row in range(2):
        for token in range(int(common.query_start_loc[row]), int(common.query_start_loc[row + 1])):
            for place in ints(inputs.selected[token]):
                cache[int(common.block_table_tensor[row, place // 4]), place % 4] = 1.0
    out = MLA_SPARSE.layer("l0", LAYER).impl.forward(inputs, kv_cache=cache, attn_metadata=build(common))
    assert not bool(out.isnan().any())


def test_case_13_another_group_s_tokens_stand_in_its_own_blocks() -> None:
    common = batch([(1, 9), (2, 3), (3, 9)])
    group = bind()
    metadata = group.builder.build(0, common)
    other, slots = common.block_table_tensor + 100, common.slot_mapping + 400
    moved, rebuilt = (
        group.update_block_table(metadata, other, slots),
        group.builder.build(0, common.for_group(other, slots)),
    )
    assert moved.sparse is not None
    assert rebuilt.sparse is not None
    positions = torch.zeros(4, 1, dtype=torch.int32)
    assert torch.equal(moved.sparse.slots(positions), rebuilt.sparse.slots(positions))
    assert moved.prefill is not None
    assert rebuilt.prefill is not None
    assert torch.equal(moved.prefill.context[0].slots, rebuilt.prefill.context[0].slots)
    assert torch.equal(moved.slot_mapping, slots)
    dense = group.builder.build(0, batch([(1, 2)]))
    assert group.update_block_table(dense, dense.block_table + 1, dense.slot_mapping).sparse is None


def test_bad_input_is_refused() -> None:
    layer = [MLA_SPARSE.layer("l0", LAYER)]
    with pytest.raises(ValueError, match="topk is 0; a token attends over at least 1"):
        replace(LAYER, topk=0)
    with pytest.raises(ValueError, match="topk is -3; a token attends over at least 1"):
        replace(LAYER, topk=-3)
    with pytest.raises(ValueError, match="kv_lora_rank is 0; it must be at least 1"):
        replace(LAYER, kv_lora_rank=0)
    with pytest.raises(ValueError, match=r"layer 'l0' caches 16 elements a token \(12 latent and 4 with positions\)"):
        MLA_SPARSE.bind(replace(spec_of(), head_size=20), layer, CONFIG, CPU)
    dense = LatentLayerConfig(3, 12, 6, 4, 5, 0.3)
    with pytest.raises(ValueError, match="described by a LatentLayerConfig; it has no sparse latent attention"):
        MLA_SPARSE.bind(spec_of(), layer, replace(CONFIG, layers={"l0": dense}), CPU)
    two = replace(CONFIG, layers={"l0": LAYER, "l1": replace(LAYER, topk=7)})
    with pytest.raises(ValueError, match=r"layers of one group must share topk; got {6: 'l0', 7: 'l1'}"):
        MLA_SPARSE.bind(spec_of(), [*layer, MLA_SPARSE.layer("l1", LAYER)], two, CPU)
    full = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=16, dtype=torch.float32)
    with pytest.raises(BindError, match=r"adapter 'mla_sparse' takes MLAAttentionSpec, but layers .* have a Full"):
        MLA_SPARSE.bind_any(full, layer, CONFIG, CPU)
    common = batch([(2, 4), (3, 11)])
    narrow = replace(common, block_table_tensor=common.block_table_tensor[:, :2])
    with pytest.raises(
        ValueError, match="block_table has 2 columns, and a sequence of 14 tokens in blocks of 4 needs 4"
    ):
        build(narrow)
    inputs = inputs_of(common, 0)
    with pytest.raises(ValueError, match=r"selected is \(4, 6\); it must be \[5, topk\], a row for each token"):
        layer[0].impl.forward(
            replace(inputs, selected=inputs.selected[:4]), kv_cache=torch.zeros(9, 4, 16), attn_metadata=build(common)
        )


def test_positions_behind_the_longest_sequence_are_refused() -> None:
    common = batch([(1, 9), (1, 8)])
    inputs = inputs_of(common, 0)
    inputs.selected[1, 0] = 300
    with pytest.raises(ValueError, match="selected holds position 300; the longest sequence has 10 tokens"):
        MLA_SPARSE.layer("l0", LAYER).impl.forward(inputs, kv_cache=torch.zeros(9, 4, 16), attn_metadata=build(common))


def test_a_sparse_batch_moves_to_blocks_of_another_size() -> None:
    common = batch([(1, 9), (1, 8)])
    other = make_batch([1, 1], [9, 8], 8)
    group = MLA_SPARSE.bind(replace(spec_of(), block_size=8), [MLA_SPARSE.layer("l0", LAYER)], CONFIG, CPU)
    moved = group.update_block_table(build(common), other.block_table_tensor, other.slot_mapping)
    rebuilt = group.builder.build(0, other)
    assert moved.sparse is not None
    assert rebuilt.sparse is not None
    positions = torch.tensor([[0, 9], [3, 8]], dtype=torch.int32)
    assert torch.equal(moved.sparse.slots(positions), rebuilt.sparse.slots(positions))
