"""Latent attention: how a batch is cut, and that decodes and prefills give what expanded keys and values give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_type

import numpy as np
import pytest
import torch
from attention_batches import ints, make_batch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.adapter import BindError, BoundGroup, LatentAdapter
from genericbuilders.backends.mla import MLA, MLAInputs, MLAMetadata, MLAMetadataBuilder
from genericbuilders.backends.mla_common import cut_context
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, EngineConfig, LatentLayerConfig
from genericbuilders.kernels.tolerance import compare
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec, KVQuantMode, MLAAttentionSpec

LAYER = LatentLayerConfig(num_heads=3, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, scale=0.3)
CONFIG = EngineConfig(max_model_len=512, max_num_seqs=8, layers={"l0": LAYER})
CPU = torch.device("cpu")


def spec_of(block_size: int = 4) -> MLAAttentionSpec:
    return MLAAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=16, dtype=torch.float32)


def bind(block_size: int = 4) -> BoundGroup[MLAMetadata, MLAAttentionSpec]:
    return MLA.bind(spec_of(block_size), [MLA.layer("l0", LAYER)], CONFIG, CPU)


def build(
    common: CommonAttentionMetadata, block_size: int, workspace_tokens: int | None = None, drafts: int = 0
) -> MLAMetadata:
    config = replace(CONFIG, num_speculative_tokens=drafts)
    builder = MLAMetadataBuilder(spec_of(block_size), ["l0"], config, CPU)
    if workspace_tokens is not None:
        builder.workspace_tokens = workspace_tokens
    return builder.build(0, common)


def test_the_types_are_kept() -> None:
    assert_type(MLA, LatentAdapter[MLAMetadata, MLAAttentionSpec, MLAInputs])
    assert_type(bind().builder.build(0, make_batch([1], [3], 4)), MLAMetadata)
    assert bind().cudagraph_support() is AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    assert bind().kv_cache_shape(7) == (7, 4, 16)


def inputs_of(num_tokens: int, seed: int) -> MLAInputs:
    generator = torch.Generator().manual_seed(seed)
    return MLAInputs(
        torch.randn(num_tokens, 3, 10, generator=generator),
        torch.randn(num_tokens, 16, generator=generator),
        torch.randn(3, 11, 12, generator=generator) * 0.3,
    )


def attend_expanded(common: CommonAttentionMetadata, inputs: MLAInputs, cache: Tensor, dtype: torch.dtype) -> Tensor:
    """By definition: every token's key and value expanded, one request at a time."""
    out = torch.zeros(len(inputs.query), 3, 5, dtype=dtype)
    size = cache.shape[1]
    for row in range(common.num_reqs):
        start, end = int(common.query_start_loc[row]), int(common.query_start_loc[row + 1])
        length = int(common.seq_lens[row])
        if start == end:
            continue
        old = length - (end - start)
        cached = [cache[int(common.block_table_tensor[row, at // size]), at % size] for at in range(old)]
        latent = torch.stack([*cached, *inputs.latent[start:end]]).to(dtype)
        up = torch.einsum("tl,hdl->thd", latent[:, :12], inputs.kv_up.to(dtype))
        key = torch.cat((up[..., :6], latent[:, None, 12:].expand(-1, 3, -1)), -1)
        scores = torch.einsum("qhd,khd->hqk", inputs.query[start:end].to(dtype), key) * 0.3
        unseen = torch.arange(length)[None] > torch.arange(old, length)[:, None]
        weights = scores.masked_fill(unseen, -torch.inf).softmax(-1)
        out[start:end] = torch.einsum("hqk,khd->qhd", weights, up[..., 6:])
    return out


def check(
    rows: Sequence[tuple[int, int]], block_size: int, workspace_tokens: int | None, seed: int = 0, drafts: int = 0
) -> None:
    common = make_batch([new for new, _ in rows], [old for _, old in rows], block_size)
    inputs = inputs_of(common.num_actual_tokens, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    cache = torch.randn(1 + int(common.block_table_tensor.max()), block_size, 16, generator=generator)
    working = attend_expanded(common, inputs, cache, torch.float32)
    exact = attend_expanded(common, inputs, cache, torch.float64)
    metadata = build(common, block_size, workspace_tokens, drafts)
    got = MLA.layer("l0", LAYER).impl.forward(inputs, kv_cache=cache, attn_metadata=metadata)
    comparison = compare(got, working, exact)
    assert comparison.passed, comparison
    for token, slot in enumerate(ints(common.slot_mapping)):
        assert torch.equal(cache[slot // block_size, slot % block_size], inputs.latent[token])


@given(
    decodes=st.lists(st.integers(0, 30), max_size=3),
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=4),
    block_size=st.sampled_from([1, 4, 7]),
    workspace_tokens=st.sampled_from([1, 5, 16, 1000]),
    seed=st.integers(0, 99),
)
def test_it_attends_as_expanded_keys_and_values_do(
    decodes: list[int], rows: list[tuple[int, int]], block_size: int, workspace_tokens: int, seed: int
) -> None:
    check([*[(1, old) for old in decodes], *rows, (2, 3)], block_size, workspace_tokens, seed)


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), min_size=1, max_size=6),
    drafts=st.integers(1, 4),
    block_size=st.sampled_from([1, 4, 7]),
    seed=st.integers(0, 99),
)
def test_draft_tokens_attend_as_expanded_keys_and_values_do(
    rows: list[tuple[int, int]], drafts: int, block_size: int, seed: int
) -> None:
    check(rows, block_size, 5, seed, drafts)


def test_draft_tokens_expand_no_context() -> None:
    common = make_batch([3, 1, 0, 3, 4, 1], [20, 9, 0, 0, 8, 5], 4)
    metadata = build(common, 4, drafts=2)
    assert (metadata.num_decodes, metadata.num_decode_tokens, metadata.num_prefills) == (4, 7, 2)
    assert metadata.decode is not None
    assert metadata.decode.max_query_len == 3
    assert metadata.prefill is not None
    assert ints(metadata.prefill.query_start_loc) == [0, 4, 5]
    assert [ints(each.lengths) for each in metadata.prefill.context] == [[8, 5]]
    verified = build(make_batch([3, 2, 0], [20, 9, 0], 4), 4, drafts=2)
    assert verified.prefill is None
    assert verified.decode is not None
    assert verified.num_decode_tokens == 5


def test_draft_tokens_of_no_sequence_are_refused() -> None:
    common = make_batch([3, 1], [0, 9], 4)
    wrong = replace(common, num_computed_tokens_cpu=torch.tensor([-2, 9], dtype=torch.int32))
    with pytest.raises(ValueError, match="row 0 has 3 new tokens in a sequence of 1"):
        build(wrong, 4, drafts=2)


def test_case_18_a_prefix_hit_is_context_even_where_the_prompt_comes_whole() -> None:
    config = replace(CONFIG, max_model_len=8192, max_num_batched_tokens=8192)
    builder = MLA.bind(spec_of(16), [MLA.layer("l0", LAYER)], config, CPU).builder
    metadata = builder.build(0, make_batch([100], [4096], 16))
    assert metadata.decode is None
    assert metadata.prefill is not None
    assert [(ints(each.starts), ints(each.lengths)) for each in metadata.prefill.context] == [([0], [4096])]
    check([(5, 4096)], 16, None)


def test_case_19_a_context_longer_than_the_workspace_is_merged_exactly() -> None:
    # Of 1,000 and 37 tokens, 48 at once: 24 of each row, in whole blocks of 8.
    metadata = build(make_batch([3, 2], [1000, 37], 8), 8, 48)
    assert metadata.prefill is not None
    first, second, third = metadata.prefill.context[:3]
    assert (ints(first.lengths), ints(second.lengths), ints(third.lengths)) == ([24, 24], [24, 13], [24, 0])
    assert ints(second.cu_seq_lens) == [0, 24, 37]
    assert (second.max_seq_len, second.num_tokens) == (24, 37)
    assert sum(each.num_tokens for each in metadata.prefill.context) == 1037
    check([(3, 1000), (2, 37)], 8, 48)


@given(
    context=st.lists(st.integers(0, 50), min_size=1, max_size=5),
    workspace_tokens=st.integers(1, 60),
    block_size=st.sampled_from([1, 4, 16]),
)
def test_chunks_cover_each_context_once_and_fit_the_workspace(
    context: list[int], workspace_tokens: int, block_size: int
) -> None:
    chunks = cut_context(np.array(context), workspace_tokens, block_size)
    for row, tokens in enumerate(context):
        covered = [
            position
            for starts, lengths in chunks
            for position in range(int(starts[row]), int(starts[row]) + int(lengths[row]))
        ]
        assert covered == list(range(tokens))
    rows = sum(tokens > 0 for tokens in context)
    assert all(int(lengths.sum()) <= max(workspace_tokens, rows) for _, lengths in chunks)


def test_rows_are_split_behind_the_leading_single_tokens() -> None:
    metadata = build(make_batch([1, 1, 5, 1], [7, 0, 2, 9], 4), 4)
    assert (metadata.num_decodes, metadata.num_decode_tokens, metadata.num_prefills) == (2, 2, 2)
    assert metadata.prefill is not None
    assert ints(metadata.prefill.query_start_loc) == [0, 5, 6]
    padded = build(make_batch([1, 1, 0], [7, 3, 9], 4), 4)
    assert (padded.num_decodes, padded.num_decode_tokens, padded.num_prefills) == (3, 2, 0)
    assert padded.prefill is None


def test_a_stale_row_is_nobody_s_context() -> None:
    metadata = build(make_batch([5, 0], [0, 99], 4), 4)
    assert metadata.prefill is not None
    assert metadata.prefill.context == ()


def test_case_13_another_group_s_context_stands_in_its_own_blocks() -> None:
    common = make_batch([1, 3], [6, 9], 4)
    group = bind()
    metadata = group.builder.build(0, common)
    moved = group.update_block_table(metadata, common.block_table_tensor + 100, common.slot_mapping + 400)
    assert metadata.prefill is not None
    assert moved.prefill is not None
    (before,), (after,) = metadata.prefill.context, moved.prefill.context
    assert torch.equal(after.slots, before.slots + 400)
    assert moved.decode is not None
    assert torch.equal(moved.decode.block_table, common.block_table_tensor[:1] + 100)
    assert torch.equal(moved.block_table, common.block_table_tensor + 100)


def test_bad_input_is_refused() -> None:
    layer = [MLA.layer("l0", LAYER)]
    with pytest.raises(ValueError, match=r"layer 'l0' caches 16 elements a token \(12 latent and 4 with positions\)"):
        MLA.bind(replace(spec_of(), head_size=20), layer, CONFIG, CPU)
    with pytest.raises(ValueError, match="one plain vector a token for all heads"):
        MLA.bind(replace(spec_of(), num_kv_heads=2), layer, CONFIG, CPU)
    with pytest.raises(ValueError, match="without a window or a quantised cache"):
        MLA.bind(replace(spec_of(), kv_quant_mode=KVQuantMode.FP8_PER_TENSOR), layer, CONFIG, CPU)
    full = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=16, dtype=torch.float32)
    with pytest.raises(
        BindError, match=r"adapter 'mla' takes MLAAttentionSpec, but layers .* have a FullAttentionSpec"
    ):
        MLA.bind_any(full, layer, CONFIG, CPU)
    wrong = replace(CONFIG, layers={"l0": AttentionLayerConfig(4, 1, 16, 1.0)})
    with pytest.raises(
        ValueError, match="layer 'l0' is described by a AttentionLayerConfig; it has no latent attention"
    ):
        MLA.bind(spec_of(), layer, wrong, CPU)
    with pytest.raises(ValueError, match="kv_lora_rank is 0; it must be at least 1"):
        replace(LAYER, kv_lora_rank=0)


@pytest.mark.parametrize(("before", "after"), [(4, 8), (8, 4)])
def test_a_batch_moves_to_blocks_of_another_size(before: int, after: int) -> None:
    old, new = (make_batch([1, 3, 5], [3, 12, 4], size) for size in (before, after))
    moved = bind(after).builder.update_block_table(build(old, before), new.block_table_tensor, new.slot_mapping)
    inputs, layer = inputs_of(9, 0), MLA.layer("l0", LAYER)
    cache = torch.randn(1 + int(new.block_table_tensor.max()), after, 16)
    expected = layer.impl.forward(inputs, kv_cache=cache.clone(), attn_metadata=build(new, after))
    assert torch.equal(layer.impl.forward(inputs, kv_cache=cache, attn_metadata=moved), expected)


def test_a_batch_moves_to_no_table_that_is_too_small() -> None:
    common = make_batch([1, 3], [3, 12], 4)
    metadata, table = build(common, 4), common.block_table_tensor
    for cut, told in (
        (table[:, :-1], "has 3 columns, and a sequence of 15 tokens"),
        (table[:1], "1 rows for 2 requests"),
    ):
        with pytest.raises(ValueError, match=told):
            bind().builder.update_block_table(metadata, cut, common.slot_mapping)


def test_an_empty_batch_may_state_any_bound() -> None:
    metadata = build(replace(make_batch([], [], 4), max_query_len=4), 4)
    assert (metadata.num_decodes, metadata.decode, metadata.prefill) == (0, None, None)


@pytest.mark.parametrize("rows", [[(1, 6)], [(5, 0)], [(5, 6)]])
def test_inputs_of_another_dtype_than_the_cache_s_are_refused(rows: list[tuple[int, int]]) -> None:
    common = make_batch([new for new, _ in rows], [old for _, old in rows], 4)
    cache = torch.zeros(9, 4, 16, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"the cache is torch.float64, but query, latent and kv_up are torch.float32"):
        MLA.layer("l0", LAYER).impl.forward(
            inputs_of(common.num_actual_tokens, 0), kv_cache=cache, attn_metadata=build(common, 4)
        )
