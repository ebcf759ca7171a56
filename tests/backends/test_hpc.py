"""The hpc back end: its split, what it hands to hpc-ops, which layers that takes, and the kernels that run without it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import assert_type

import pytest
import torch
from attention_batches import ints, make_batch
from fake_hpc import FakeHpc
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.adapter import BoundGroup
from genericbuilders.backends import hpc
from genericbuilders.backends.hpc import HPC, HpcMetadata
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, EngineConfig, KVCacheLayout
from genericbuilders.kernels import reference
from genericbuilders.kernels.hpc import load_hpc, why_not_hpc
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.tolerance import compare
from genericbuilders.kernels.triton import find
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec, KVQuantMode, SinkFullAttentionSpec

HEADS = AttentionLayerConfig(num_heads=8, num_kv_heads=2, head_size=128, scale=128**-0.5)
CPU = torch.device("cpu")
Rows = list[tuple[int, int]]
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 90)), min_size=1, max_size=5)


def make_spec(dtype: torch.dtype = torch.bfloat16) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=64, num_kv_heads=2, head_size=128, dtype=dtype)


def config_of(drafts: int = 0, heads: AttentionLayerConfig = HEADS) -> EngineConfig:
    return EngineConfig(max_model_len=512, max_num_seqs=8, num_speculative_tokens=drafts, layers={"l0": heads})


def bind(
    spec: FullAttentionSpec, drafts: int = 0, heads: AttentionLayerConfig = HEADS
) -> BoundGroup[HpcMetadata, FullAttentionSpec]:
    return HPC.bind(spec, [HPC.layer("l0", heads)], config_of(drafts, heads), CPU)


def batch_of(rows: Rows, block_size: int = 64) -> CommonAttentionMetadata:
    return make_batch([new for new, _ in rows], [old for _, old in rows], block_size)


def test_the_types_are_kept() -> None:
    group = bind(make_spec())
    assert_type(group.builder.build(0, batch_of([(1, 0)])), HpcMetadata)
    assert_type(group.spec, FullAttentionSpec)


@pytest.mark.parametrize(
    ("lens", "drafts", "split", "query_len"),
    [
        ([1, 1, 4], 0, (2, 2, 1, 4), 1),
        ([3, 3, 1], 2, (2, 6, 1, 1), 3),
        ([1, 3, 3], 2, (1, 1, 2, 6), 1),
        ([3, 3, 0], 2, (3, 6, 0, 0), 3),
        ([4, 1], 2, (0, 0, 2, 5), 1),
        ([2, 2], 2, (2, 4, 0, 0), 2),
        ([2, 2], 0, (0, 0, 2, 4), 1),
    ],
)
def test_decodes_of_equally_many_tokens_come_first(
    lens: list[int], drafts: int, split: tuple[int, int, int, int], query_len: int
) -> None:
    common = make_batch(lens, [9] * len(lens), 64)
    metadata = bind(make_spec(), drafts).builder.build(0, common)
    counts = (metadata.num_decodes, metadata.num_decode_tokens, metadata.num_prefills, metadata.num_prefill_tokens)
    assert (counts, metadata.decode_query_len) == (split, query_len)
    decodes = split[0]
    starts = ints(common.query_start_loc)
    expected = [start - starts[decodes] for start in starts[decodes:]] if split[2] else None
    assert (None if metadata.qo_indptr is None else ints(metadata.qo_indptr)) == expected
    front = None if metadata.qo_indptr_decode is None else ints(metadata.qo_indptr_decode)
    assert front == (starts[: decodes + 1] if decodes else None)
    assert metadata.task_map is None


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeHpc:
    """hpc-ops, as if it were installed and the CPU its device."""
    fake = FakeHpc()
    monkeypatch.setattr(hpc, "find_functions", fake.find)
    return fake


def inputs(tokens: int, heads: AttentionLayerConfig, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    size = heads.head_size
    query = torch.randn(tokens, heads.num_heads, size, generator=generator).to(dtype)
    key, value = torch.randn(2, tokens, heads.num_kv_heads, size, generator=generator).to(dtype).unbind()
    return query, key, value


def run(
    spec: FullAttentionSpec, common: CommonAttentionMetadata, drafts: int = 0, heads: AttentionLayerConfig = HEADS
) -> tuple[Tensor, Tensor, Tensor]:
    """What the back end computes, and what the reference does, in the same dtype and in float64."""
    group, layer = bind(spec, drafts, heads), HPC.layer("l0", heads)
    blocks = 1 + int(common.block_table_tensor.max())
    cache = torch.randn(group.kv_cache_shape(blocks), generator=torch.Generator().manual_seed(4)).to(spec.dtype)
    query, key, value = inputs(len(common.slot_mapping), heads, spec.dtype, 5)
    before = cache.clone()
    found = layer.impl.forward(query, key, value, cache, group.builder.build(0, common))

    def expect(dtype: torch.dtype) -> Tensor:
        keys, values = (part.to(dtype, copy=True) for part in split_kv(before, KVCacheLayout.BLOCK_FIRST))
        reference.write_kv_cache(key.to(dtype), value.to(dtype), keys, values, common.slot_mapping)
        return reference.paged_attention(
            query.to(dtype),
            keys,
            values,
            query_start_loc=common.query_start_loc,
            seq_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            scale=heads.scale,
            causal=True,
        )

    return found, expect(spec.dtype), expect(torch.float64)


@given(rows=ROWS, drafts=st.integers(0, 3), padding=st.integers(0, 2))
def test_hpc_ops_is_given_all_rows_with_tokens(rows: Rows, drafts: int, padding: int) -> None:
    fake = FakeHpc()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hpc, "find_functions", fake.find)
        common = batch_of(rows)
        slots = torch.cat((common.slot_mapping, torch.full((padding,), -1)))
        found, expected, _ = run(make_spec(), replace(common, slot_mapping=slots), drafts)
    assert torch.equal(found, expected)
    assert fake.calls[0] == ["workspace", 8, 512, 2, 1024]
    assert ("decode" in {call[0] for call in fake.calls}) or common.num_actual_tokens == 0 or rows[0][0] != 1


@given(rows=ROWS)
def test_without_hpc_ops_it_attends_as_the_reference_in_float64_does(rows: Rows) -> None:
    found, working, exact = run(make_spec(torch.float32), batch_of(rows))
    comparison = compare(found, working, exact)
    assert comparison.passed, comparison


def test_decodes_are_planned_once_a_batch(fake: FakeHpc) -> None:
    group = bind(make_spec(), 2)
    first = group.builder.build(0, batch_of([(3, 20), (3, 70), (2, 0)]))
    again = group.builder.build(0, batch_of([(4, 0)]))
    assert fake.calls == [["workspace", 8, 512, 2, 1024], ["assign", [23, 73], 2, 3, True, 1024]]
    # The plan stays in one place, from which a graph may read it.
    assert first.task_map is again.task_map is not None
    moved = group.update_block_table(first, first.block_table + 9, first.slot_mapping + 9)
    assert torch.equal(moved.block_table, first.block_table + 9)
    assert moved.task_map is first.task_map


@pytest.mark.parametrize(
    ("heads", "says"),
    [
        (replace(HEADS, head_size=64, scale=0.125), "heads of 128 elements, not of 64"),
        (replace(HEADS, num_heads=4), "4 or 8 query heads for each key-value head, not 2"),
        (replace(HEADS, causal=False), "it is causal"),
        (replace(HEADS, sliding_window=8), "it has no windows"),
        (replace(HEADS, logits_soft_cap=8.0), "it has no soft cap"),
        (replace(HEADS, alibi_slopes=(0.5,) * 8), "it has no slopes"),
        (replace(HEADS, sinks=torch.zeros(8)), "it has no sinks"),
        (replace(HEADS, scale=0.1), "it scales scores by 0.0883883, not by 0.1"),
    ],
)
def test_layers_that_hpc_ops_does_not_take_run_by_our_kernels(
    fake: FakeHpc, heads: AttentionLayerConfig, says: str
) -> None:
    reason = why_not_hpc(heads, torch.bfloat16, 64, 0)
    assert reason is not None
    assert says in reason
    spec = replace(
        make_spec(),
        num_kv_heads=heads.num_kv_heads,
        head_size=heads.head_size,
        head_size_v=heads.head_size,
        sliding_window=heads.sliding_window,
    )
    group = bind(spec, 0, heads)
    query, key, value = inputs(4, heads, torch.bfloat16, 1)
    cache = torch.zeros(group.kv_cache_shape(4), dtype=torch.bfloat16)
    metadata = group.builder.build(0, batch_of([(1, 3), (3, 0)]))
    assert HPC.layer("l0", heads).impl.forward(query, key, value, cache, metadata).isfinite().all()
    assert fake.calls == []


def test_other_dtypes_blocks_and_drafts_run_by_our_kernels(fake: FakeHpc) -> None:
    assert why_not_hpc(HEADS, torch.bfloat16, 64, 3) is None
    assert bind(make_spec(torch.float16)).builder.build(0, batch_of([(1, 3)])).task_map is None
    assert bind(replace(make_spec(), block_size=16)).builder.build(0, batch_of([(1, 3)], 16)).task_map is None
    assert bind(make_spec(), 4).builder.build(0, batch_of([(5, 3)])).task_map is None
    assert fake.calls == []


def test_a_batch_that_sees_both_sides_runs_by_our_kernels(fake: FakeHpc) -> None:
    group = bind(make_spec())
    metadata = group.builder.build(0, replace(batch_of([(3, 0)]), causal=False))
    query, key, value = inputs(3, HEADS, torch.bfloat16, 1)
    cache = torch.zeros(group.kv_cache_shape(3), dtype=torch.bfloat16)
    HPC.layer("l0", HEADS).impl.forward(query, key, value, cache, metadata)
    assert [call[0] for call in fake.calls] == ["workspace"]


def test_the_support_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    single, uniform = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE, AttentionCGSupport.UNIFORM_BATCH
    monkeypatch.setattr(find, "installed_triton", lambda: "3.7.1")
    assert HPC.cudagraph_support(config_of(0), make_spec()) is single
    assert HPC.cudagraph_support(config_of(2), make_spec()) is uniform
    # Layers that hpc-ops does not take run by our kernels, and the portable ones read lengths back.
    monkeypatch.setattr(find, "installed_triton", lambda: Unavailable("triton is not installed"))
    assert HPC.cudagraph_support(config_of(2), make_spec()) is single


def test_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeHpc()
    module = fake.module()
    monkeypatch.setitem(sys.modules, "hpc", module)
    assert load_hpc().decode == fake.decode
    monkeypatch.setattr(module, "attention_decode_bf16", fake.prefill)
    with pytest.raises(ImportError, match="takes no task_map; install a newer hpc-ops"):
        load_hpc()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (replace(make_spec(), attention_chunk_size=8), "chunks"),
        (replace(make_spec(), kv_quant_mode=KVQuantMode.FP8_PER_TENSOR), "a quantised cache"),
        (
            SinkFullAttentionSpec(block_size=64, num_kv_heads=2, head_size=128, dtype=torch.bfloat16, sink_len=4),
            "a SinkFullAttentionSpec",
        ),
    ],
)
def test_what_it_would_compute_wrongly_is_refused(spec: FullAttentionSpec, says: str) -> None:
    with pytest.raises(ValueError, match=rf"layers \['l0'\] have .*{says}.*hpc serves plain keys and values"):
        bind(spec)
