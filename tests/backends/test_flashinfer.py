"""The FlashInfer back end: its plan inputs, its split, what wrappers make of them, and the kernels that run without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_type

import pytest
import torch
from attention_batches import attend_by_mask, ints, make_batch
from fake_flashinfer import Made, attend_by_pages
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.adapter import BoundGroup
from genericbuilders.backends import flashinfer
from genericbuilders.backends.flashinfer import FLASHINFER, FlashInferMetadata, FlashInferSpec
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, EngineConfig, KVCacheLayout
from genericbuilders.kernels import reference
from genericbuilders.kernels.flashinfer import Heads, page_inputs, why_not_flashinfer
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.scoring import Scoring
from genericbuilders.kernels.tolerance import compare
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    KVQuantMode,
    MambaSpec,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

HEADS = AttentionLayerConfig(num_heads=4, num_kv_heads=2, head_size=64, scale=0.125)
CONFIG = EngineConfig(max_model_len=128, layers={"l0": HEADS, "l1": HEADS})
CPU = torch.device("cpu")
Rows = list[tuple[int, int]]
ROWS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), min_size=1, max_size=6)
DECODES_FIRST = st.tuples(
    st.lists(st.tuples(st.just(1), st.integers(0, 40)), max_size=4),
    st.lists(st.tuples(st.integers(2, 9), st.integers(0, 40)), max_size=3),
).map(lambda two: [*two[0], *two[1]])
SIZES = st.sampled_from([1, 4, 16])


def make_spec(block_size: int = 4, dtype: torch.dtype = torch.float32) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=2, head_size=64, dtype=dtype)


def bind(
    spec: FlashInferSpec, config: EngineConfig = CONFIG, names: Sequence[str] = ("l0",)
) -> BoundGroup[FlashInferMetadata, FlashInferSpec]:
    layers = [FLASHINFER.layer(name, attention(config, name)) for name in names]
    return FLASHINFER.bind(spec, layers, config, CPU)


def attention(config: EngineConfig, name: str) -> AttentionLayerConfig:
    layer = config.layers[name]
    assert isinstance(layer, AttentionLayerConfig)
    return layer


def batch_of(rows: Rows, block_size: int) -> CommonAttentionMetadata:
    return make_batch([new for new, _ in rows], [old for _, old in rows], block_size)


def padded(common: CommonAttentionMetadata, rows: int, tokens: int) -> CommonAttentionMetadata:
    """The same with neutral rows and tokens behind the others; what the table says of them is stale."""
    more, table = rows - common.num_reqs, common.block_table_tensor
    starts = torch.cat((common.query_start_loc, common.query_start_loc[-1:].expand(more)))
    lengths = torch.cat((common.seq_lens, common.seq_lens.new_zeros(more)))
    return replace(
        common,
        num_reqs=rows,
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lengths,
        seq_lens_cpu=lengths,
        num_computed_tokens_cpu=torch.cat((common.num_computed_tokens_cpu, lengths.new_zeros(more))),
        block_table_tensor=torch.cat((table, table.new_full((more, table.shape[1]), 77))),
        slot_mapping=torch.cat((common.slot_mapping, torch.full((tokens - common.num_actual_tokens,), -1))),
    )


def test_the_types_are_kept() -> None:
    group = bind(make_spec())
    assert_type(group.builder.build(0, make_batch([1], [0], 4)), FlashInferMetadata)
    assert_type(group.spec, FlashInferSpec)


@given(rows=ROWS, block_size=SIZES)
def test_plan_inputs_are_what_the_block_tables_say(rows: Rows, block_size: int) -> None:
    common = batch_of(rows, block_size)
    metadata = bind(make_spec(block_size)).builder.build(0, common)
    indptr, starts = [0], [0]
    indices: list[int] = []
    last: list[int] = []
    for row, (new, old) in enumerate(rows):
        count = 0
        for first in range(0, new + old, block_size):
            indices.append(int(common.block_table_tensor[row, count]))
            count += 1
            if first + block_size >= new + old:
                last.append(new + old - first)
        if not count:
            last.append(0)
        indptr.append(indptr[-1] + count)
        starts.append(starts[-1] + new)
    assert ints(metadata.qo_indptr) == starts
    assert ints(metadata.paged_kv_indptr) == indptr
    assert ints(metadata.paged_kv_indices) == indices
    assert ints(metadata.paged_kv_last_page_len) == last
    for tensor in (
        metadata.qo_indptr,
        metadata.paged_kv_indptr,
        metadata.paged_kv_indices,
        metadata.paged_kv_last_page_len,
    ):
        assert tensor.dtype == torch.int32


@given(rows=ROWS, block_size=SIZES, seed=st.integers(0, 9))
def test_attention_by_the_plan_inputs_alone_is_the_references(rows: Rows, block_size: int, seed: int) -> None:
    common = batch_of(rows, block_size)
    metadata = bind(make_spec(block_size)).builder.build(0, common)
    generator = torch.Generator().manual_seed(seed)
    num_blocks = 1 + int(common.block_table_tensor.max())
    keys, values = torch.randn(2, num_blocks, block_size, 2, 64, generator=generator).unbind()
    query = torch.randn(common.num_actual_tokens, 4, 64, generator=generator)
    found = attend_by_pages(
        query,
        keys,
        values,
        metadata.qo_indptr,
        metadata.paged_kv_indptr,
        metadata.paged_kv_indices,
        metadata.paged_kv_last_page_len,
        scale=0.125,
    )
    expected = reference.paged_attention(
        query,
        keys,
        values,
        query_start_loc=common.query_start_loc,
        seq_lens=common.seq_lens,
        block_table=common.block_table_tensor,
        scale=0.125,
        causal=True,
    )
    assert torch.equal(found, expected)


def test_case_07_rows_of_a_graph_have_no_pages() -> None:
    common = padded(make_batch([1] * 342, [5 + row % 40 for row in range(342)], 16), 352, 352)
    metadata = bind(make_spec(16)).builder.build(0, common)
    assert len(metadata.paged_kv_indptr) == len(metadata.qo_indptr) == 353
    assert ints(metadata.paged_kv_indptr.diff()[-10:]) == [0] * 10
    assert ints(metadata.qo_indptr.diff()[-10:]) == [0] * 10
    assert (metadata.paged_kv_indptr.diff()[:-10] > 0).all()
    assert ints(metadata.paged_kv_last_page_len[-10:]) == [0] * 10
    assert len(metadata.paged_kv_indices) == int(metadata.paged_kv_indptr[-1])
    assert (metadata.num_decodes, metadata.num_prefills) == (352, 0)


@pytest.mark.parametrize(
    ("lens", "split"),
    [
        ([1, 1, 4, 2], (2, 2, 2, 6)),
        ([1, 1], (2, 2, 0, 0)),
        ([3, 1, 1], (0, 0, 3, 5)),
        ([1, 4, 1], (1, 1, 2, 5)),
        # Padding is behind; of rows that bring nothing but stand before others nobody says that they are decodes.
        ([1, 1, 0, 0], (4, 2, 0, 0)),
        ([1, 0, 1], (1, 1, 2, 1)),
        ([0, 1], (0, 0, 2, 1)),
        ([0, 0], (2, 0, 0, 0)),
        ([], (0, 0, 0, 0)),
    ],
)
def test_decodes_are_the_rows_of_one_token_at_the_front(lens: list[int], split: tuple[int, int, int, int]) -> None:
    metadata = bind(make_spec()).builder.build(0, make_batch(lens, [3] * len(lens), 4))
    assert split == (
        metadata.num_decodes,
        metadata.num_decode_tokens,
        metadata.num_prefills,
        metadata.num_prefill_tokens,
    )


def test_case_29_a_wrapped_group_is_unwrapped_layer_by_layer() -> None:
    other = AttentionLayerConfig(num_heads=8, num_kv_heads=4, head_size=128, scale=0.1)
    config = replace(CONFIG, layers={"l0": HEADS, "l1": other})
    wide = replace(make_spec(), num_kv_heads=4, head_size=128, head_size_v=128)
    wrapped = UniformTypeKVCacheSpecs(4, {"l0": make_spec(), "l1": wide})
    group = bind(wrapped, config, ("l0", "l1"))
    assert group.cudagraph_support() is AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    metadata = group.builder.build(0, make_batch([1, 3], [6, 0], 4))
    assert ints(metadata.paged_kv_indptr) == [0, 2, 3]
    # Each layer is held to its own spec, not to its neighbour's.
    with pytest.raises(ValueError, match=r"layer 'l0' has 2 key-value heads of size 64.*made for 4 of size 128"):
        bind(UniformTypeKVCacheSpecs(4, {"l0": wide, "l1": wide}), config, ("l0", "l1"))
    with pytest.raises(ValueError, match=r"layer 'l0' is not among those that its spec wraps: \['l1'\]"):
        bind(UniformTypeKVCacheSpecs(4, {"l1": wide}), config)
    # One shape cannot be that of both caches; where layers agree it is theirs.
    with pytest.raises(ValueError, match=r"caches differ.*\(2, 4, 64, torch.float32\); \(4, 4, 128, torch.float32\)"):
        group.kv_cache_shape(3)
    same = bind(UniformTypeKVCacheSpecs(4, {"l0": make_spec(), "l1": make_spec()}), names=("l0", "l1"))
    assert same.kv_cache_shape(3) == bind(make_spec()).kv_cache_shape(3) == (3, 2, 2, 4, 64)
    assert same.kv_cache_dtype() == torch.float32


@dataclass(frozen=True, kw_only=True)
class StateOfAllTokens(MambaSpec):
    """A state that keeps a block for every token, so that it may share a block table with attention."""

    @property
    def allocation_key(self) -> tuple[type[KVCacheSpec], ...]:
        return (FullAttentionSpec,)


def test_graph_support_looks_through_wrappers_and_skips_states() -> None:
    decode, never = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE, AttentionCGSupport.NEVER
    state = StateOfAllTokens(block_size=4, shapes=((2, 2),), dtypes=(torch.float32,))
    quantised = replace(make_spec(), kv_quant_mode=KVQuantMode.FP8_PER_TENSOR)
    for specs, support in (
        ({"a": make_spec()}, decode),
        ({"a": make_spec(), "s": state}, decode),
        ({"s": state, "a": make_spec()}, decode),
        ({"s": state}, never),
        ({"a": make_spec(), "q": quantised}, never),
        ({"q": quantised, "s": state, "a": make_spec()}, never),
    ):
        assert FLASHINFER.cudagraph_support(CONFIG, UniformTypeKVCacheSpecs(4, specs)) is support, specs
    assert FLASHINFER.cudagraph_support(CONFIG, make_spec()) is decode
    # A layer of the group that is a state belongs to another back end.
    with pytest.raises(ValueError, match="layer 'l0' has a StateOfAllTokens; flashinfer serves attention alone"):
        bind(UniformTypeKVCacheSpecs(4, {"l0": state}))


@given(
    rows=ROWS,
    block_size=SIZES,
    window=st.sampled_from([None, 1, 8]),
    causal=st.booleans(),
    seed=st.integers(0, 9),
)
def test_without_flashinfer_it_attends_as_the_mask_says(
    rows: Rows, block_size: int, window: int | None, causal: bool, seed: int
) -> None:
    # Every row has keys, of which a token without the causal mask sees at least its own.
    common = replace(batch_of(rows, block_size), causal=causal)
    heads = replace(HEADS, sliding_window=window)
    spec: AttentionSpec = make_spec(block_size)
    if window is not None:
        spec = SlidingWindowSpec(
            block_size=block_size, num_kv_heads=2, head_size=64, dtype=torch.float32, sliding_window=window
        )
    group = bind(spec, replace(CONFIG, layers={"l0": heads}))
    cache = torch.randn(group.kv_cache_shape(1 + int(common.block_table_tensor.max())))
    query, key, value = make_inputs(common.num_actual_tokens, 4, 2, seed)

    def sees(at: int, to: int) -> bool:
        return (not causal or to <= at) and (window is None or abs(to - at) < window)

    def attend(dtype: torch.dtype) -> Tensor:
        keys, values = (part.to(dtype, copy=True) for part in split_kv(cache, KVCacheLayout.BLOCK_FIRST))
        reference.write_kv_cache(key.to(dtype), value.to(dtype), keys, values, common.slot_mapping)
        return attend_by_mask(common, query.to(dtype), keys, values, HEADS.scale, sees)

    working, exact = attend(torch.float32), attend(torch.float64)
    metadata = group.builder.build(0, common)
    assert not metadata.plans
    found = compare(
        FLASHINFER.layer("l0", heads).impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata),
        working,
        exact,
    )
    assert found.passed, found


def make_inputs(tokens: int, heads: int, kv_heads: int, seed: int, size: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(tokens, heads, size, generator=generator)
    key, value = torch.randn(2, tokens, kv_heads, size, generator=generator).unbind()
    return query, key, value


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """FlashInfer, as if it were installed and the CPU one of its devices."""
    made = Made()
    monkeypatch.setattr(flashinfer, "find_planner", made.planner)
    return made


def run(config: EngineConfig, common: CommonAttentionMetadata, seed: int = 0) -> tuple[Tensor, Tensor]:
    """What the back end computes in bfloat16, and what the reference does."""
    heads = attention(config, "l0")
    spec = FullAttentionSpec(
        block_size=4,
        num_kv_heads=heads.num_kv_heads,
        head_size=heads.head_size,
        dtype=torch.bfloat16,
        sliding_window=heads.sliding_window,
    )
    group = bind(spec, config)
    blocks = 1 + int(common.block_table_tensor.masked_fill(common.block_table_tensor == 77, 0).max())
    generator = torch.Generator().manual_seed(seed)
    cache = torch.randn(group.kv_cache_shape(blocks), generator=generator).to(torch.bfloat16)
    query, key, value = (
        part.to(torch.bfloat16)
        for part in make_inputs(len(common.slot_mapping), heads.num_heads, heads.num_kv_heads, seed, heads.head_size)
    )
    layer = FLASHINFER.layer("l0", heads)
    expected_cache = cache.clone()
    found = layer.impl.forward(query, key, value, cache, group.builder.build(0, common))
    keys, values = split_kv(expected_cache, KVCacheLayout.BLOCK_FIRST)
    reference.write_kv_cache(key, value, keys, values, common.slot_mapping)
    expected = reference.paged_attention(
        query,
        keys,
        values,
        query_start_loc=common.query_start_loc,
        seq_lens=common.seq_lens,
        block_table=common.block_table_tensor,
        scale=heads.scale,
        causal=heads.causal and common.causal,
        scoring=Scoring(heads.logits_soft_cap, sliding_window=heads.sliding_window),
    )
    return found, expected


@given(rows=DECODES_FIRST.filter(bool), more=st.integers(0, 2), window=st.sampled_from([None, 5]), causal=st.booleans())
def test_wrappers_are_planned_with_the_batch(rows: Rows, more: int, window: int | None, causal: bool) -> None:
    made, cap = Made(), 30.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flashinfer, "find_planner", made.planner)
        heads = replace(HEADS, sliding_window=window, logits_soft_cap=cap)
        common = batch_of(rows, 4)
        common = replace(
            padded(common, len(rows) + more, common.num_actual_tokens + more), causal=causal or window is not None
        )
        found, expected = run(replace(CONFIG, layers={"l0": heads}), common)
    assert torch.equal(found, expected)
    decodes = sum(new == 1 for new, _ in rows)
    assert len(made.decodes) == (decodes > 0)
    assert len(made.prefills) == (decodes < len(rows))


def test_layers_that_are_alike_share_a_plan_and_case_21_others_have_their_own(made: Made) -> None:
    target = AttentionLayerConfig(num_heads=64, num_kv_heads=8, head_size=64, scale=0.125)
    draft = AttentionLayerConfig(num_heads=8, num_kv_heads=2, head_size=64, scale=0.125)
    layers = {"t0": target, "t1": target, "d0": draft}
    config = EngineConfig(max_model_len=64, layers=layers)
    half = torch.bfloat16
    specs = {name: replace(make_spec(4, half), num_kv_heads=heads.num_kv_heads) for name, heads in layers.items()}
    group = bind(UniformTypeKVCacheSpecs(4, specs), config, tuple(layers))
    common = make_batch([1], [6], 4)
    metadata = group.builder.build(0, common)
    assert [wrapper.heads for wrapper in made.decodes] == [(64, 8, 64), (8, 2, 64)]
    for name, heads in layers.items():
        cache = torch.randn(3, 2, heads.num_kv_heads, 4, 64).to(half)
        query, key, value = (part.to(half) for part in make_inputs(1, heads.num_heads, heads.num_kv_heads, 1))
        out = FLASHINFER.layer(name, heads).impl.forward(query, key, value, cache, metadata)
        keys, values = split_kv(cache, KVCacheLayout.BLOCK_FIRST)
        expected = reference.paged_attention(
            query,
            keys,
            values,
            query_start_loc=common.query_start_loc,
            seq_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            scale=0.125,
            causal=True,
        )
        assert torch.equal(out, expected), name
    # The workspace is one for all; planning again makes no new wrapper.
    assert len({wrapper.workspace.data_ptr() for wrapper in made.decodes}) == 1
    group.builder.build(0, common)
    assert [wrapper.plans for wrapper in made.decodes] == [2, 2]


@pytest.mark.parametrize(
    "heads",
    [
        replace(HEADS, alibi_slopes=(0.5, 0.25, 0.1, 0.0)),
        replace(HEADS, sinks=torch.zeros(4)),
        replace(HEADS, head_size=80),
        replace(HEADS, causal=False, sliding_window=4),
    ],
)
def test_layers_that_flashinfer_does_not_take_run_by_our_kernels(made: Made, heads: AttentionLayerConfig) -> None:
    spec = FullAttentionSpec(
        block_size=4,
        num_kv_heads=2,
        head_size=heads.head_size,
        dtype=torch.bfloat16,
        sliding_window=heads.sliding_window,
    )
    group = bind(spec, replace(CONFIG, layers={"l0": heads}))
    metadata = group.builder.build(0, make_batch([1, 3], [6, 0], 4))
    assert not metadata.plans
    query, key, value = (part.to(torch.bfloat16) for part in make_inputs(4, 4, 2, 0, heads.head_size))
    cache = torch.zeros(group.kv_cache_shape(4), dtype=torch.bfloat16)
    out = FLASHINFER.layer("l0", heads).impl.forward(query, key, value, cache, metadata)
    assert out.isfinite().all()
    assert not made.decodes
    assert not made.prefills


def test_a_window_is_not_planned_for_a_batch_that_sees_both_sides(made: Made) -> None:
    heads = replace(HEADS, sliding_window=4)
    group = bind(replace(make_spec(4, torch.bfloat16), sliding_window=4), replace(CONFIG, layers={"l0": heads}))
    common = make_batch([1, 3], [6, 0], 4)
    assert group.builder.build(0, common).plans
    assert not group.builder.build(0, replace(common, causal=False)).plans


def test_reasons_are_told() -> None:
    plain = Heads(4, 2, 64, 0.125, True, None, None, torch.bfloat16)
    assert why_not_flashinfer(plain, alibi=False, sinks=False) is None
    for heads, says in (
        (replace(plain, dtype=torch.float32), "not in torch.float32"),
        (replace(plain, head_size=80), "not of 80"),
        (replace(plain, causal=False, sliding_window=3), "both sides"),
    ):
        reason = why_not_flashinfer(heads, alibi=False, sinks=False)
        assert reason is not None
        assert says in reason


def test_a_graph_has_wrappers_whose_buffers_stay(made: Made) -> None:
    group = bind(make_spec(4, torch.bfloat16))
    captured = group.builder.build_for_cudagraph_capture(make_batch([1] * 4, [127] * 4, 4))
    (graph,) = made.decodes
    assert graph.buffers is not None
    assert [len(buffer) for buffer in graph.buffers] == [5, 4 * 32, 4]
    # Three requests in the graph of four rows.
    common = padded(make_batch([1] * 3, [4, 9, 2], 4), 4, 4)
    later = group.builder.build(0, common)
    (plan,), (first,) = later.plans.values(), captured.plans.values()
    assert plan.decode is graph is first.decode
    assert ints(graph.buffers[0]) == [0, 2, 5, 6, 6]
    assert ints(graph.buffers[2]) == [1, 2, 3, 0]
    found, expected = run_with(group, later, common)
    assert torch.equal(found, expected)
    # Another number of rows, or fewer tokens than rows, is no batch of the graph's.
    for other in (make_batch([1] * 3, [4, 9, 2], 4), padded(make_batch([1] * 3, [4, 9, 2], 4), 4, 3)):
        metadata = group.builder.build(0, other)
        (plan,) = metadata.plans.values()
        assert plan.decode is not graph
        found, expected = run_with(group, metadata, other)
        assert torch.equal(found, expected)


def run_with(
    group: BoundGroup[FlashInferMetadata, FlashInferSpec],
    metadata: FlashInferMetadata,
    common: CommonAttentionMetadata,
) -> tuple[Tensor, Tensor]:
    """One layer by ``metadata``, and by the reference."""
    half, generator = torch.bfloat16, torch.Generator().manual_seed(7)
    cache = torch.randn(group.kv_cache_shape(100), generator=generator).to(half)
    query, key, value = (part.to(half) for part in make_inputs(len(common.slot_mapping), 4, 2, 3))
    found = FLASHINFER.layer("l0", HEADS).impl.forward(query, key, value, cache, metadata)
    keys, values = split_kv(cache, KVCacheLayout.BLOCK_FIRST)
    expected = reference.paged_attention(
        query,
        keys,
        values,
        query_start_loc=common.query_start_loc,
        seq_lens=common.seq_lens,
        block_table=metadata.block_table,
        scale=HEADS.scale,
        causal=True,
    )
    return found, expected


def test_another_groups_blocks_are_planned_anew(made: Made) -> None:
    group, common = bind(make_spec(4, torch.bfloat16)), padded(make_batch([1, 1, 6], [4, 7, 3], 4), 4, 9)
    metadata = group.builder.build(0, common)
    table = torch.where(common.block_table_tensor == 77, 77, common.block_table_tensor + 20)
    moved = group.update_block_table(
        metadata, table, torch.where(common.slot_mapping < 0, -1, common.slot_mapping + 80)
    )
    assert ints(moved.paged_kv_indices) == [page + 20 for page in ints(metadata.paged_kv_indices)]
    assert torch.equal(moved.paged_kv_indptr, metadata.paged_kv_indptr)
    assert torch.equal(moved.paged_kv_last_page_len, metadata.paged_kv_last_page_len)
    found, expected = run_with(group, moved, common)
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (replace(make_spec(), attention_chunk_size=8), "chunks"),
        (replace(make_spec(), kv_quant_mode=KVQuantMode.FP8_PER_TENSOR), "a quantised cache"),
        (replace(make_spec(), head_size_v=8), "values of 8 elements"),
        (
            SinkFullAttentionSpec(block_size=4, num_kv_heads=2, head_size=64, dtype=torch.float32, sink_len=4),
            "a SinkFullAttentionSpec",
        ),
    ],
)
def test_what_it_would_compute_wrongly_is_refused(spec: AttentionSpec, says: str) -> None:
    with pytest.raises(ValueError, match=rf"layers \['l0'\] have .*{says}.*flashinfer serves plain keys and values"):
        bind(spec)


def test_a_cache_of_another_window_is_refused() -> None:
    with pytest.raises(ValueError, match="layer 'l0' sees all tokens, but its cache is kept for a window of 8 tokens"):
        bind(replace(make_spec(), sliding_window=8))


def test_a_table_too_narrow_is_refused() -> None:
    table = torch.zeros(2, 2, dtype=torch.int32)
    lengths = torch.tensor([8, 9], dtype=torch.int32)
    with pytest.raises(ValueError, match="2 columns, and row 1, a sequence of 9 tokens in blocks of 4, needs 3"):
        page_inputs(torch.tensor([0, 1, 2], dtype=torch.int32), lengths, table, 4)
