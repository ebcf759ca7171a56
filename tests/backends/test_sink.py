"""Attention behind learned sinks: by definition in float64, what it builds, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_type

import pytest
import torch
from attention_batches import ints, make_batch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.adapter import BindError, BoundGroup
from genericbuilders.backends import BUILT_IN
from genericbuilders.backends.fast_prefill import fast_prefill
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.sink import SINK, MissingSinksError, SinkLayer, SinkMetadata
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, EngineConfig, KVCacheLayout
from genericbuilders.kernels import reference
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.scoring import Scoring
from genericbuilders.kernels.tolerance import compare
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.registry import Registry, Selection
from genericbuilders.specs import FullAttentionSpec, KVQuantMode, SinkFullAttentionSpec, cdiv

HEADS = AttentionLayerConfig(num_heads=6, num_kv_heads=2, head_size=16, scale=0.25)
CPU = torch.device("cpu")
# Blocks of the sinks; the rows' own start behind them.
FIRST = 1


def make_spec(sink_len: int = 4, block_size: int = 4, dtype: torch.dtype = torch.float32) -> SinkFullAttentionSpec:
    return SinkFullAttentionSpec(block_size=block_size, num_kv_heads=2, head_size=16, dtype=dtype, sink_len=sink_len)


def bind(
    spec: SinkFullAttentionSpec, heads: AttentionLayerConfig = HEADS, max_num_seqs: int = 256
) -> tuple[BoundGroup[SinkMetadata, SinkFullAttentionSpec], SinkLayer]:
    layer = SINK.layer("l0", heads)
    config = EngineConfig(max_model_len=256, max_num_seqs=max_num_seqs, layers={"l0": heads})
    return SINK.bind(spec, [layer], config, CPU), layer


def behind_sinks(common: CommonAttentionMetadata, spec: SinkFullAttentionSpec) -> CommonAttentionMetadata:
    """The batch with the sinks' blocks in front of each row that has a sequence, and every block moved behind them."""
    count = spec.num_shared_blocks
    own = torch.where(common.block_table_tensor > 0, common.block_table_tensor + count, 0)
    front = torch.arange(FIRST, FIRST + count, dtype=torch.int32).expand(common.num_reqs, count)
    table = torch.cat((torch.where(common.seq_lens[:, None] > 0, front, 0), own), 1)
    return replace(
        common, block_table_tensor=table.contiguous(), slot_mapping=common.slot_mapping + count * spec.block_size
    )


def draw(num_tokens: int, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(num_tokens, 6, 16, generator=generator).to(dtype)
    key, value = torch.randn(2, num_tokens, 2, 16, generator=generator).to(dtype).unbind()
    return query, key, value


def by_definition(
    common: CommonAttentionMetadata,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    sinks: tuple[Tensor, Tensor],
    scoring: Scoring,
) -> Tensor:
    """The oracle over each row's sinks and tokens, one behind the other and without blocks.

    ``keys`` and ``values`` are a cache without sinks, in which the batch's own blocks and slots are.
    """
    size, lens = keys.shape[1], [int(length) for length in common.seq_lens]
    rows_k: list[Tensor] = []
    rows_v: list[Tensor] = []
    for row, length in enumerate(lens):
        blocks = common.block_table_tensor[row, : cdiv(length, size)].long()
        front = slice(0, len(sinks[0]) if length else 0)
        rows_k += [sinks[0][front], keys[blocks].flatten(0, 1)[:length]]
        rows_v += [sinks[1][front], values[blocks].flatten(0, 1)[:length]]
    counts = [length + len(sinks[0]) if length else 0 for length in lens]
    starts = torch.tensor([0, *counts]).cumsum(0).to(torch.int32)
    return reference.varlen_attention(
        query,
        torch.cat(rows_k),
        torch.cat(rows_v),
        cu_seqlens_q=common.query_start_loc,
        cu_seqlens_k=starts,
        max_seqlen_q=common.max_query_len,
        max_seqlen_k=max(counts),
        scale=HEADS.scale,
        causal=common.causal,
        scoring=scoring,
    )


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=5),
    sink_len=st.integers(1, 9),
    block_size=st.sampled_from([1, 4, 7]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    scored=st.booleans(),
    causal=st.booleans(),
    padding=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_it_attends_as_the_reference_over_sinks_and_tokens_does(
    rows: list[tuple[int, int]],
    sink_len: int,
    block_size: int,
    dtype: torch.dtype,
    scored: bool,
    causal: bool,
    padding: int,
    seed: int,
) -> None:
    plain = replace(make_batch([new for new, _ in rows], [old for _, old in rows], block_size), causal=causal)
    tokens, spec = plain.num_actual_tokens, make_spec(sink_len, block_size, dtype)
    logits = torch.linspace(-1, 1, 6)
    heads = replace(HEADS, logits_soft_cap=3.0, sinks=logits) if scored else HEADS
    scoring = Scoring(soft_cap=3.0, sinks=logits) if scored else Scoring()
    group, layer = bind(spec, heads)
    generator = torch.Generator().manual_seed(seed)
    num_blocks = 1 + int(plain.block_table_tensor.max())
    own = torch.randn(group.kv_cache_shape(num_blocks), generator=generator).to(dtype)
    sinks = draw(sink_len, dtype, seed + 1)[1:]
    query, key, value = draw(tokens + padding, dtype, seed)

    # Slots that nobody wrote, those behind the sinks in their last block among them, hold what must not be read.
    shared = spec.num_shared_blocks
    cache = torch.full(group.kv_cache_shape(num_blocks + shared), float("nan"), dtype=dtype)
    cache[0] = 0.0
    cache[FIRST + shared :] = own[1:]
    layer.set_sinks(*sinks)
    group.fill_shared_blocks({layer: cache}, range(FIRST, FIRST + shared))

    common = _padded(behind_sinks(plain, spec), padding)
    metadata = group.builder.build(0, common)
    got = layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata)

    def define(wide: torch.dtype) -> Tensor:
        keys, values = (part.to(wide, copy=True) for part in split_kv(own, KVCacheLayout.BLOCK_FIRST))
        reference.write_kv_cache(key[:tokens].to(wide), value[:tokens].to(wide), keys, values, plain.slot_mapping)
        wide_sinks = sinks[0].to(wide), sinks[1].to(wide)
        return by_definition(plain, query[:tokens].to(wide), keys, values, wide_sinks, scoring)

    # Sinks that are apart are merged, which rounds three times more than one pass.
    comparison = compare(got[:tokens], define(dtype), define(torch.float64), roundings=16.0)
    assert comparison.passed, comparison
    assert not got[tokens:].any()


def _padded(common: CommonAttentionMetadata, padding: int) -> CommonAttentionMetadata:
    """The batch with rows behind it that have no tokens, and a stale block table."""
    starts = torch.cat((common.query_start_loc, common.query_start_loc[-1:].expand(padding))).contiguous()
    lens = torch.cat((common.seq_lens, torch.zeros(padding, dtype=torch.int32)))
    stale = torch.full((padding, common.block_table_tensor.shape[1]), 99, dtype=torch.int32)
    return replace(
        common,
        num_reqs=common.num_reqs + padding,
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lens,
        seq_lens_cpu=lens,
        num_computed_tokens_cpu=torch.nn.functional.pad(common.num_computed_tokens_cpu, (0, padding)),
        block_table_tensor=torch.cat((common.block_table_tensor, stale)),
        slot_mapping=torch.cat((common.slot_mapping, torch.full((padding,), -1))),
    )


def test_the_types_are_kept() -> None:
    group, layer = bind(make_spec())
    assert_type(group.builder.build(0, make_batch([1], [0], 4)), SinkMetadata)
    assert_type(group.spec, SinkFullAttentionSpec)
    assert_type(layer, SinkLayer)


def test_the_registry_names_it_for_specs_with_sinks_alone() -> None:
    registry = Registry(BUILT_IN)
    chosen = registry.for_spec(make_spec())
    assert_type(chosen, Selection[SinkFullAttentionSpec])
    assert chosen.adapter is SINK
    full = FullAttentionSpec(block_size=4, num_kv_heads=2, head_size=16, dtype=torch.float32)
    assert registry.for_spec(full).adapter is FLASH_ATTN
    assert registry.by_adapter(SINK) is SINK


def test_lengths_count_sinks_of_whole_blocks_and_empty_rows_stay_empty() -> None:
    group, _ = bind(make_spec(8))
    common = make_batch([1, 0, 3], [6, 0, 0], 4)
    metadata = group.builder.build(0, common)
    assert ints(metadata.seq_lens) == [15, 0, 11]
    assert (metadata.max_seq_len, metadata.apart) == (15, None)
    assert ints(common.seq_lens) == [7, 0, 3], "the batch is every group's"
    assert metadata.seq_lens.dtype == torch.int32


def test_sinks_that_end_within_a_block_are_apart() -> None:
    group, _ = bind(make_spec(6))
    common = make_batch([1, 3], [6, 0], 4)
    metadata = group.builder.build(0, common)
    assert metadata.seq_lens is common.seq_lens
    assert metadata.apart is not None
    assert (metadata.apart.num_tokens, metadata.apart.num_columns) == (6, 2)
    assert group.builder.build(0, make_batch([], [], 4)).num_actual_tokens == 0


def test_more_rows_than_the_run_s_limit_are_built_all_the_same() -> None:
    group, _ = bind(make_spec(), max_num_seqs=1)
    assert ints(group.builder.build(0, make_batch([1, 1], [1, 2], 4)).seq_lens) == [6, 7]


@pytest.mark.parametrize("sink_len", [4, 6])
def test_another_group_s_blocks_have_the_same_batch(sink_len: int) -> None:
    spec = make_spec(sink_len)
    group, layer = bind(spec)
    common = behind_sinks(make_batch([1, 2], [9, 5], 4), spec)
    metadata = group.builder.build(0, common)
    moved = group.update_block_table(metadata, common.block_table_tensor + 10, common.slot_mapping + 40)
    cache = torch.zeros(group.kv_cache_shape(30))
    cache[:20] = torch.randn(group.kv_cache_shape(20))
    shifted = torch.zeros_like(cache)
    shifted[10:] = cache[:-10]
    query, key, value = draw(3, torch.float32, 3)
    layer.set_sinks(*draw(sink_len, torch.float32, 4)[1:])
    layer.fill_shared_blocks(cache, range(1, 1 + spec.num_shared_blocks))
    out = layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata)
    layer.fill_shared_blocks(shifted, range(11, 11 + spec.num_shared_blocks))
    assert torch.equal(layer.impl.forward(query, key, value, kv_cache=shifted, attn_metadata=moved), out)


def test_sinks_without_values_are_zeros() -> None:
    group, layer = bind(make_spec(4))
    cache = torch.full(group.kv_cache_shape(3), 7.0)
    key = torch.randn(4, 2, 16)
    layer.set_sinks(key)
    group.fill_shared_blocks({layer: cache}, [2])
    assert torch.equal(cache[2, 0], key.transpose(0, 1))
    assert not cache[2, 1].any()
    assert (cache[:2] == 7.0).all()


def test_graphs_hold_sinks_of_whole_blocks() -> None:
    config = EngineConfig(max_model_len=256, layers={"l0": HEADS})
    assert SINK.cudagraph_support(config, make_spec(8)) is AttentionCGSupport.UNIFORM_BATCH
    assert SINK.cudagraph_support(config, make_spec(6)) is AttentionCGSupport.NEVER


def test_a_cache_in_which_the_sinks_do_not_stand_is_refused() -> None:
    group, layer = bind(make_spec())
    query, key, value = draw(1, torch.float32, 0)
    metadata = group.builder.build(0, behind_sinks(make_batch([1], [0], 4), make_spec()))

    def run(cache: Tensor) -> Tensor:
        return layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata)

    cache = torch.zeros(group.kv_cache_shape(3))
    with pytest.raises(MissingSinksError, match="layer 'l0' has no sinks to put into its cache"):
        group.fill_shared_blocks({layer: cache}, [1])
    layer.set_sinks(torch.ones(4, 2, 16))
    with pytest.raises(MissingSinksError, match="layer 'l0' runs on a cache in which its sinks do not stand"):
        run(cache)
    group.fill_shared_blocks({layer: cache}, [1])
    run(cache)
    with pytest.raises(MissingSinksError, match="layer 'l0' runs on a cache"):
        run(cache.clone())
    layer.set_sinks(torch.zeros(4, 2, 16))
    with pytest.raises(MissingSinksError, match="layer 'l0' runs on a cache"):
        run(cache)


def test_sinks_of_another_number_than_the_spec_s_are_refused() -> None:
    group, layer = bind(make_spec(4))
    cache = torch.zeros(group.kv_cache_shape(3))
    layer.set_sinks(torch.ones(3, 2, 16))
    group.fill_shared_blocks({layer: cache}, [1])
    query, key, value = draw(1, torch.float32, 0)
    metadata = group.builder.build(0, behind_sinks(make_batch([1], [0], 4), make_spec()))
    with pytest.raises(ValueError, match="layer 'l0' has 3 sinks, but its cache is made for 4"):
        layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata)
    layer.set_sinks(torch.ones(5, 2, 16))
    with pytest.raises(ValueError, match=r"layer 'l0' has 5 sinks, which take 2 blocks of 4 tokens.*keeps 1"):
        group.fill_shared_blocks({layer: cache}, [1])


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ((4, 3, 16), None, r"sinks' keys are \(4, 3, 16\).*2 key-value heads, 16 elements"),
        ((4, 2, 8), None, r"sinks' keys are \(4, 2, 8\)"),
        ((4, 32), None, r"sinks' keys are \(4, 32\)"),
        ((0, 2, 16), None, "of at least one sink"),
        ((4, 2, 16), (4, 2, 15), r"sinks' values are \(4, 2, 15\)"),
        ((4, 2, 16), (3, 2, 16), "there are 4 keys of sinks, but 3 values"),
    ],
)
def test_sinks_of_a_wrong_shape_are_refused(key: tuple[int, ...], value: tuple[int, ...] | None, says: str) -> None:
    with pytest.raises(ValueError, match=rf"layer 'l0'.*{says}"):
        SINK.layer("l0", HEADS).set_sinks(torch.zeros(key), None if value is None else torch.zeros(value))


@pytest.mark.parametrize(
    ("spec", "heads", "says"),
    [
        (replace(make_spec(), kv_quant_mode=KVQuantMode.FP8_PER_TENSOR), HEADS, "a quantised cache.*sink serves plain"),
        (replace(make_spec(), head_size_v=8), HEADS, "values of 8 elements"),
        (replace(make_spec(), sliding_window=8), replace(HEADS, sliding_window=8), "a window or chunks"),
        (replace(make_spec(), attention_chunk_size=8), HEADS, "a window or chunks"),
        (replace(make_spec(), num_kv_heads=3), HEADS, "layer 'l0' has 2 key-value heads"),
        (make_spec(), replace(HEADS, sliding_window=8), "layer 'l0' sees a window of 8 tokens"),
        (make_spec(), replace(HEADS, alibi_slopes=(0.5,) * 6), "layer 'l0' has ALiBi slopes.*no positions"),
    ],
)
def test_what_it_would_compute_wrongly_is_refused(
    spec: SinkFullAttentionSpec, heads: AttentionLayerConfig, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        bind(spec, heads)


def test_no_sinks_at_all_are_no_such_spec() -> None:
    with pytest.raises(ValueError, match="sink_len is 0"):
        make_spec(0)


def test_no_layer_shares_a_cache_with_sinks() -> None:
    with pytest.raises(TypeError, match=r"SinkImpl has no read\(\)"):
        fast_prefill(SINK)
    layer = SINK.layer("l0", HEADS)
    reader = SINK.sharing_layer("l1", HEADS, layer)
    config = EngineConfig(max_model_len=256, layers={"l0": HEADS, "l1": HEADS})
    with pytest.raises(BindError, match=r"'l1' cannot share the cache of layer 'l0': .* 'sink' has no read\(\)"):
        SINK.bind(make_spec(), [layer, reader], config, CPU)


@pytest.mark.parametrize("sink_len", [3, 4])
def test_sinks_hide_no_wrong_length(sink_len: int) -> None:
    spec = make_spec(sink_len)
    group, _ = bind(spec)
    right = behind_sinks(make_batch([1, 2], [5, 3], 4), spec)
    for lengths, told in (([6, 1], "row 1 has 2 new tokens in a sequence of 1"), ([-3, 5], "row 0 .* sequence of -3")):
        lens = torch.tensor(lengths, dtype=torch.int32)
        with pytest.raises(ValueError, match=told):
            group.builder.build(0, replace(right, seq_lens=lens, seq_lens_cpu=lens))


def test_sinks_apart_are_read_through_a_row_that_has_tokens() -> None:
    """A row of padding has a stale length, and none of the sinks' blocks."""
    spec = make_spec(3)
    group, layer = bind(spec)
    query, key, value = draw(3, torch.float32, 0)
    layer.set_sinks(*draw(3, torch.float32, 1)[1:])
    cache = torch.randn(group.kv_cache_shape(9))
    group.fill_shared_blocks({layer: cache}, [FIRST])
    plain = behind_sinks(make_batch([1, 2], [5, 3], 4), spec)
    padded = _padded(plain, 1)
    stale = torch.tensor([6, 5, 1000], dtype=torch.int32)
    padded.block_table_tensor[2] = 0
    padded = replace(padded, seq_lens=stale, seq_lens_cpu=stale)
    expected, got = (
        layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=group.builder.build(0, common))
        for common in (plain, padded)
    )
    assert torch.equal(got, expected)


@pytest.mark.parametrize("sink_len", [3, 4])
def test_an_empty_batch_gives_nothing(sink_len: int) -> None:
    group, layer = bind(make_spec(sink_len))
    layer.set_sinks(*draw(sink_len, torch.float32, 1)[1:])
    cache = torch.randn(group.kv_cache_shape(3))
    group.fill_shared_blocks({layer: cache}, [FIRST])
    metadata = group.builder.build(0, make_batch([], [], 4))
    assert layer.impl.forward(*draw(0, torch.float32, 0), kv_cache=cache, attn_metadata=metadata).shape == (0, 6, 16)
    assert group.builder.update_block_table(metadata, metadata.block_table, metadata.slot_mapping) == metadata


def test_a_batch_moves_to_groups_of_the_same_sinks_alone() -> None:
    spec = make_spec(3)
    metadata = bind(spec)[0].builder.build(0, behind_sinks(make_batch([1], [5], 4), spec))
    for other, told in ((make_spec(5), "5 in blocks of 4"), (make_spec(3, 2), "3 in blocks of 2")):
        with pytest.raises(ValueError, match=f"described for 3 sinks in 1 blocks, but this group has {told}"):
            bind(other)[0].builder.update_block_table(metadata, metadata.block_table, metadata.slot_mapping)
    whole = bind(make_spec(4))[0].builder.build(0, behind_sinks(make_batch([1], [5], 4), make_spec(4)))
    with pytest.raises(ValueError, match="4 sinks in whole blocks, but this group has 8 in blocks of 4"):
        bind(make_spec(8))[0].builder.update_block_table(whole, whole.block_table, whole.slot_mapping)
