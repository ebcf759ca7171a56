"""The back end over an encoder's output: what is stored when, what is attended over, what is built and refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_type

import pytest
import torch
from attention_batches import ints, make_batch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.adapter import BindError, BoundGroup, Step
from genericbuilders.backends.cross import CROSS, ENCODER_ROWS, CrossAttentionMetadata, EncoderRows
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.kernels.tolerance import compare_to_reference
from genericbuilders.keys import TypedMap
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import CrossAttentionSpec, FullAttentionSpec, KVQuantMode, cdiv

LAYER = AttentionLayerConfig(6, 2, 16, 0.25, causal=False)
LAYERS = {
    "l0": LAYER,
    "causal": replace(LAYER, causal=True),
    "sloped": replace(LAYER, alibi_slopes=(0.5,) * 6),
    "windowed": replace(LAYER, sliding_window=4),
    "wide": replace(LAYER, head_size=32),
}
CONFIG = EngineConfig(max_model_len=64, layers=LAYERS)
CPU = torch.device("cpu")
STALE = 999_999


def spec_of(block_size: int = 4) -> CrossAttentionSpec:
    return CrossAttentionSpec(
        block_size=block_size, num_kv_heads=2, head_size=16, dtype=torch.float32, max_encoder_len=40
    )


def bind(
    spec: CrossAttentionSpec | None = None, layer: str = "l0"
) -> BoundGroup[CrossAttentionMetadata, CrossAttentionSpec]:
    layers = [CROSS.layer(layer, LAYERS[layer])]
    return CROSS.bind(spec_of() if spec is None else spec, layers, CONFIG, CPU, (ENCODER_ROWS,))


def batch(
    query_lens: Sequence[int],
    encoder_lens: Sequence[int],
    starts: Sequence[bool],
    table: Tensor,
    block_size: int,
    stale: int = 0,
) -> CommonAttentionMetadata:
    """Rows over encoder outputs; buffers are ``stale`` rows longer, and hold old numbers there."""
    common = make_batch(query_lens, [7] * len(query_lens), 4)
    slots = [
        int(table[row, place // block_size]) * block_size + place % block_size
        for row, begins in enumerate(starts)
        if begins
        for place in range(encoder_lens[row])
    ]
    lens = torch.tensor([*encoder_lens, *[STALE] * stale], dtype=torch.int32)
    inputs = TypedMap()
    inputs.put(ENCODER_ROWS, EncoderRows(lens, lens, torch.tensor([*starts, *[True] * stale], dtype=torch.bool)))
    return replace(
        common,
        block_table_tensor=table,
        slot_mapping=torch.tensor(slots, dtype=torch.int64),
        causal=True,
        inputs=inputs,
    )


def tables(encoder_lens: Sequence[int], block_size: int, generator: torch.Generator) -> Tensor:
    """A block table whose blocks are in a random order; behind a row's blocks stands one that does not exist."""
    counts = [cdiv(length, block_size) for length in encoder_lens]
    blocks = 1 + torch.randperm(sum(counts), generator=generator, dtype=torch.int32)
    table = torch.full((len(counts), max(counts) + 1), STALE, dtype=torch.int32)
    for row, part in enumerate(torch.split(blocks, counts)):
        table[row, : len(part)] = part
    return table


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1, 2, 3, 4, 5, 8, 9, 17])), min_size=1, max_size=5),
    block_size=st.sampled_from([1, 2, 4, 8]),
    padding=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_every_token_sees_its_row_s_encoder_output_and_no_other(
    rows: list[tuple[int, int]], block_size: int, padding: int, seed: int
) -> None:
    """First all rows bring their encoder output, then none does; what no row stored is NaN throughout."""
    generator = torch.Generator().manual_seed(seed)
    query_lens, encoder_lens = [new for new, _ in rows], [length for _, length in rows]
    table = tables(encoder_lens, block_size, generator)
    group = bind(spec_of(block_size))
    (layer,) = group.layers
    cache = torch.full(group.kv_cache_shape(2 + int(table[table < STALE].max())), torch.nan)
    impl = CROSS.layer("l0", LAYER).impl
    keys, values = torch.randn(2, sum(encoder_lens), 2, 16, generator=generator).unbind()
    for new_tokens, starts in ((query_lens, True), ([1] * len(rows), False)):
        common = batch(new_tokens, encoder_lens, [starts and new > 0 for new in new_tokens], table, block_size, padding)
        if starts:
            # A row without tokens is padding: its output is stored by another batch.
            idle = batch([1] * len(rows), encoder_lens, [new == 0 for new in new_tokens], table, block_size)
            store(group, idle, impl_inputs(keys, values, encoder_lens, [new == 0 for new in new_tokens]), cache)
        step = Step()
        group.build(common, step)
        query = torch.randn(sum(new_tokens) + padding, 6, 16, generator=generator)
        mine = [starts and new > 0 for new in new_tokens]
        found = impl.forward(query, *impl_inputs(keys, values, encoder_lens, mine), cache, step[layer])
        assert not found[sum(new_tokens) :].any()

        def attend(query: Tensor, keys: Tensor, values: Tensor, counts: Sequence[int] = new_tokens) -> Tensor:
            out: list[Tensor] = []
            for q, k, v in zip(
                torch.split(query, list(counts)),
                torch.split(keys, encoder_lens),
                torch.split(values, encoder_lens),
                strict=True,
            ):
                scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(3, 1)) * 0.25
                out.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.repeat_interleave(3, 1)))
            return torch.cat(out)

        comparison = compare_to_reference(found[: sum(new_tokens)], attend, [query[: sum(new_tokens)], keys, values])
        assert comparison.passed, comparison


def impl_inputs(keys: Tensor, values: Tensor, lens: Sequence[int], starts: Sequence[bool]) -> tuple[Tensor, Tensor]:
    """Keys and values of the rows that start."""
    mask = torch.tensor(starts, dtype=torch.bool).repeat_interleave(torch.tensor(lens))
    return keys[mask], values[mask]


def store(
    group: BoundGroup[CrossAttentionMetadata, CrossAttentionSpec],
    common: CommonAttentionMetadata,
    made: tuple[Tensor, Tensor],
    cache: Tensor,
) -> None:
    metadata = group.builder.build(0, common)
    CROSS.layer("l0", LAYER).impl.forward(torch.zeros(common.num_actual_tokens, 6, 16), *made, cache, metadata)


def test_metadata_has_the_encoder_s_lengths_not_the_request_s() -> None:
    group = bind()
    table = torch.tensor([[1, 2, 3], [4, 0, 0], [5, 6, 0]], dtype=torch.int32)
    metadata = group.builder.build(0, batch([2, 1, 3], [9, 1, 8], [True, False, True], table, 4, stale=2))
    assert_type(metadata, CrossAttentionMetadata)
    assert ints(metadata.encoder_lens) == [9, 1, 8]
    assert (metadata.max_encoder_len, metadata.max_query_len, metadata.num_actual_tokens) == (9, 3, 6)
    assert ints(metadata.slot_mapping) == [4, 5, 6, 7, 8, 9, 10, 11, 12, 20, 21, 22, 23, 24, 25, 26, 27]
    assert ints(metadata.query_start_loc) == [0, 2, 3, 6]


def test_padding_rows_are_neutral_whatever_their_buffers_hold() -> None:
    """Two rows of padding are part of the batch: no tokens, and lengths and flags of requests that are long gone."""
    table = torch.tensor([[1, 2], [3, 0], [0, 0], [0, 0]], dtype=torch.int32)
    common = batch([1, 2], [5, 2], [True, True], table[:2], 4, stale=2)
    starts = torch.tensor([0, 1, 3, 3, 3], dtype=torch.int32)
    padded = replace(common, num_reqs=4, query_start_loc=starts, query_start_loc_cpu=starts, block_table_tensor=table)
    metadata = bind().builder.build(0, padded)
    assert ints(metadata.encoder_lens) == [5, 2, 0, 0]
    assert metadata.max_encoder_len == 5
    cache = torch.full(bind().kv_cache_shape(4), torch.nan)
    key, value = torch.randn(2, 7, 2, 16, generator=torch.Generator().manual_seed(0)).unbind()
    out = CROSS.layer("l0", LAYER).impl.forward(torch.ones(5, 6, 16), key, value, cache, metadata)
    assert out[:3].isfinite().all()
    assert not out[3:].any()


def test_an_empty_batch_is_built_and_run() -> None:
    common = batch([], [], [], torch.zeros(0, 1, dtype=torch.int32), 4)
    metadata = bind().builder.build(0, common)
    assert metadata.max_encoder_len == 0
    cache = torch.zeros(bind().kv_cache_shape(2))
    none = torch.zeros(0, 2, 16)
    assert CROSS.layer("l0", LAYER).impl.forward(torch.zeros(0, 6, 16), none, none, cache, metadata).shape == (0, 6, 16)


def test_a_second_group_gets_its_own_blocks_and_slots() -> None:
    table = torch.tensor([[1]], dtype=torch.int32)
    metadata = bind().builder.build(0, batch([1], [3], [True], table, 4))
    other = bind().update_block_table(metadata, table + 6, torch.tensor([28, 29, 30]))
    assert (ints(other.block_table[0]), ints(other.slot_mapping), ints(other.encoder_lens)) == ([7], [28, 29, 30], [3])
    assert (ints(metadata.block_table[0]), ints(metadata.slot_mapping)) == ([1], [4, 5, 6])


def test_batches_that_cannot_be_right_are_refused() -> None:
    table = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    builder = bind().builder
    with pytest.raises(ValueError, match="row 1 has 2 new tokens and an encoder output of 0"):
        builder.build(0, batch([1, 2], [3, 0], [True, True], table, 4))
    with pytest.raises(ValueError, match="row 1 has an encoder output of 9 tokens, which takes 3 blocks of 4"):
        builder.build(0, replace(batch([1, 1], [3, 9], [False, False], table, 4)))
    mapped = replace(batch([1, 1], [3, 2], [True, False], table, 4), slot_mapping=torch.arange(2))
    with pytest.raises(ValueError, match="have 3 encoder tokens to store, but there are 2 slots"):
        builder.build(0, mapped)
    with pytest.raises(KeyError, match="encoder_rows"):
        builder.build(0, make_batch([1], [0], 4))


def test_keys_of_other_rows_than_those_that_start_are_refused() -> None:
    metadata = bind().builder.build(0, batch([1], [3], [False], torch.tensor([[1]], dtype=torch.int32), 4))
    cache, keys = torch.zeros(bind().kv_cache_shape(2)), torch.ones(3, 2, 16)
    with pytest.raises(ValueError, match="keys of 3 encoder tokens, and slots for 0"):
        CROSS.layer("l0", LAYER).impl.forward(torch.zeros(1, 6, 16), keys, keys, cache, metadata)
    assert not cache.any()


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        ("causal", r"layers \['causal'\] are causal or have ALiBi slopes"),
        ("sloped", r"layers \['sloped'\] are causal or have ALiBi slopes"),
        ("windowed", "layer 'windowed' sees a window of 4 tokens, but its cache is kept for all tokens"),
        ("wide", "layer 'wide' has 2 key-value heads of size 32"),
    ],
)
def test_layers_that_it_does_not_compute_are_refused(layer: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        bind(layer=layer)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (replace(spec_of(), kv_quant_mode=KVQuantMode.INT8_PER_TOKEN_HEAD), "a quantised cache"),
        (replace(spec_of(), head_size_v=8), "values of 8 elements"),
        (replace(spec_of(), tokens_per_state=2), "packed heads or tokens"),
    ],
)
def test_caches_that_it_does_not_read_are_refused(spec: CrossAttentionSpec, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        bind(spec)


def test_it_is_bound_to_its_spec_and_by_callers_that_know_the_encoder() -> None:
    layers = [CROSS.layer("l0", LAYER)]
    with pytest.raises(BindError, match=r"'cross' needs \['encoder_rows'\] in common.inputs"):
        CROSS.bind(spec_of(), layers, CONFIG, CPU)
    full = FullAttentionSpec(block_size=4, num_kv_heads=2, head_size=16, dtype=torch.float32)
    with pytest.raises(BindError, match=r"takes CrossAttentionSpec, but layers .* have a FullAttentionSpec"):
        CROSS.bind_any(full, layers, CONFIG, CPU, (ENCODER_ROWS,))
    with pytest.raises(BindError, match="have a CrossAttentionSpec"):
        FLASH_ATTN.bind_any(spec_of(), [FLASH_ATTN.layer("l0", LAYER)], CONFIG, CPU)
    group = bind()
    assert CROSS.owns(group)
    assert not FLASH_ATTN.owns(group)


def test_a_row_that_starts_looks_like_a_decode_so_no_graph_is_captured() -> None:
    assert bind().cudagraph_support() is AttentionCGSupport.NEVER


def test_every_row_has_an_encoder_output() -> None:
    common = make_batch([1, 1], [4, 4], 4)
    lens = torch.tensor([3], dtype=torch.int32)
    common.inputs.put(ENCODER_ROWS, EncoderRows(lens, lens, torch.tensor([False])))
    with pytest.raises(ValueError, match="there are 2 requests, but encoder_rows has 1 lens, 1 lens_cpu and 1 starts_"):
        bind().builder.build(0, common)
