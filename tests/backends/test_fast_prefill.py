"""Fast prefill: which tokens run, that they get what they would among all others, and that nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_type

import pytest
import torch
from attention_batches import attend_by_mask, ints, make_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.adapter import BackendAdapter, BindError, BoundGroup, SharingLayer, Step
from genericbuilders.backends.chunked_local import CHUNKED_LOCAL, chunked_local
from genericbuilders.backends.encoder_only import ENCODER_ONLY
from genericbuilders.backends.fast_prefill import FAST_PREFILL, LOGITS_TOKENS, fast_prefill, skips_tokens
from genericbuilders.backends.flash_attn import (
    FLASH_ATTN,
    FlashAttentionImpl,
    FlashAttentionMetadata,
    FlashAttentionSpec,
)
from genericbuilders.backends.flashinfer import FLASHINFER
from genericbuilders.backends.fp8_kv import FP8_KV
from genericbuilders.backends.hpc import HPC
from genericbuilders.backends.mla import MLA
from genericbuilders.backends.quantised_base import quantised_spec
from genericbuilders.backends.triton import TRITON
from genericbuilders.backends.turboquant import TURBOQUANT
from genericbuilders.builder import AttentionCGSupport, AttentionMetadataBuilder
from genericbuilders.cache import allocate_kv_caches, with_sharing_layers
from genericbuilders.config import AttentionLayerConfig, EngineConfig, KVCacheLayout
from genericbuilders.engine.dummy_batch import dummy_batch
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.tolerance import compare
from genericbuilders.keys import TypedMap
from genericbuilders.metadata import IS_PREFILLING, CommonAttentionMetadata
from genericbuilders.registry import NoBackendError, Registry
from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    KVQuantMode,
    SlidingWindowSpec,
)

CPU = torch.device("cpu")
M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)
Row = tuple[int, int, int]
"""New tokens, tokens before them, and how many of the new ones' logits are wanted."""

HEADS = AttentionLayerConfig(6, 2, 16, scale=0.25)
WINDOWED = replace(HEADS, sliding_window=5)
CHUNKED = replace(HEADS, attention_chunk_size=8)
FULL = FullAttentionSpec(block_size=4, num_kv_heads=2, head_size=16, dtype=torch.float32)
WINDOW = SlidingWindowSpec(block_size=4, num_kv_heads=2, head_size=16, dtype=torch.float32, sliding_window=5)
CHUNK = ChunkedLocalAttentionSpec(
    block_size=4, num_kv_heads=2, head_size=16, dtype=torch.float32, attention_chunk_size=8
)


def batch(rows: Sequence[Row]) -> CommonAttentionMetadata:
    """The rows, with the logits that each wants of its last tokens."""
    common = make_batch([new for new, _, _ in rows], [old for _, old, _ in rows], 4)
    ends = ints(common.query_start_loc_cpu)[1:]
    tokens = [place for end, (_, _, wanted) in zip(ends, rows, strict=True) for place in range(end - wanted, end)]
    inputs = TypedMap()
    inputs.put(LOGITS_TOKENS, torch.tensor(tokens, dtype=torch.int64))
    inputs.put(IS_PREFILLING, torch.tensor([new > min(old, 1) for new, old, _ in rows], dtype=torch.bool))
    return replace(common, inputs=inputs)


def running(common: CommonAttentionMetadata) -> Tensor:
    """The tokens that layers which share a cache run for."""
    return common.inputs[LOGITS_TOKENS] if skips_tokens(common) else torch.arange(common.num_actual_tokens)


def bind(spec: FlashAttentionSpec = FULL) -> BoundGroup[FlashAttentionMetadata, FlashAttentionSpec]:
    config = EngineConfig(max_model_len=64, layers={"l0": HEADS, "l1": HEADS})
    layer = FAST_PREFILL.sharing_layer("l1", HEADS, FLASH_ATTN.layer("l0", HEADS))
    return FAST_PREFILL.bind(spec, [layer], config, CPU, (LOGITS_TOKENS,))


def test_both_types_are_the_wrapped_back_end_s() -> None:
    assert_type(FAST_PREFILL, BackendAdapter[FlashAttentionMetadata, FlashAttentionSpec])
    assert_type(fast_prefill(TURBOQUANT), BackendAdapter[FlashAttentionMetadata, FullAttentionSpec])
    assert_type(bind().builder.build(0, batch([(1, 0, 1)])), FlashAttentionMetadata)
    layer = FAST_PREFILL.sharing_layer("l1", HEADS, FLASH_ATTN.layer("l0", HEADS))
    assert_type(layer, SharingLayer[FlashAttentionMetadata])
    step = Step()
    step.put(layer, bind().builder.build(0, batch([(1, 0, 1)])))
    assert_type(step[layer], FlashAttentionMetadata)
    assert FAST_PREFILL.metadata_type is FlashAttentionMetadata
    assert FAST_PREFILL.spec_types == (FullAttentionSpec, SlidingWindowSpec)
    assert fast_prefill(FLASHINFER).spec_types == FLASHINFER.spec_types
    assert (FAST_PREFILL.reads, fast_prefill(FLASHINFER).name) == (FLASH_ATTN, "fast_prefill_flashinfer")
    assert FAST_PREFILL.needs == (LOGITS_TOKENS,)


def test_an_exact_example() -> None:
    """Of 3 tokens of a long prompt none, of a prompt's last 4 one, of a decode its own, of 5 the last two."""
    common = batch([(3, 6, 0), (4, 2, 1), (1, 8, 1), (0, 7, 0), (5, 0, 2)])
    tokens: Tensor = common.inputs[LOGITS_TOKENS]
    assert ints(tokens) == [6, 7, 11, 12]
    metadata = bind().builder.build(0, common)
    assert ints(metadata.query_start_loc) == [0, 0, 1, 2, 2, 4]
    assert ints(metadata.seq_lens) == [9, 6, 9, 7, 5]
    assert (metadata.num_actual_tokens, metadata.max_query_len, metadata.max_seq_len) == (4, 2, 9)
    assert ints(metadata.slot_mapping) == [-1] * 4
    assert metadata.block_table is common.block_table_tensor
    assert metadata.causal


class SeeingBuilder(AttentionMetadataBuilder[FlashAttentionMetadata, FullAttentionSpec]):
    """Keeps what it was told."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashAttentionMetadata:
        common = common_attn_metadata
        self.told = common, common_prefix_len, fast_build
        return FLASH_ATTN.make_builder(self.kv_cache_spec, [], self.config, self.device).build(0, common)


def test_the_wrapped_builder_is_told_of_a_whole_batch() -> None:
    seeing = BackendAdapter("seeing", SeeingBuilder, FlashAttentionImpl)
    builder = fast_prefill(seeing).builder(FULL, [], EngineConfig(max_model_len=64), CPU)
    inner = vars(builder)["_inner"]
    assert isinstance(inner, SeeingBuilder)
    common = batch([(3, 6, 0), (4, 2, 1), (1, 8, 1), (5, 0, 2)])
    builder.build(4, common, fast_build=True)
    told, prefix, fast = inner.told
    assert (prefix, fast) == (4, True)
    assert ints(told.num_computed_tokens_cpu) == [9, 5, 8, 3]
    assert ints(told.query_start_loc_cpu) == [0, 0, 1, 2, 4]
    # A row of one token that continues is a decode now; one with several tokens is not.
    assert [bool(row) for row in told.inputs[IS_PREFILLING]] == [False, False, False, True]
    assert [bool(row) for row in common.inputs[IS_PREFILLING]] == [True, True, False, True]
    builder.build_for_drafting(common, 0)
    assert (inner.told[0].num_actual_tokens, inner.told[2]) == (4, True)
    builder.build_for_cudagraph_capture(common)
    assert inner.told[0].num_actual_tokens == 4


def test_rows_of_one_token_are_handed_on_whole() -> None:
    """So that a graph of decodes sees one shape, whichever rows are in mid-prompt, and needs no input."""
    common = batch([(1, 6, 1), (1, 2, 0), (0, 9, 0)])
    assert not skips_tokens(common)
    metadata = bind().builder.build(0, common)
    assert metadata.query_start_loc is common.query_start_loc
    assert metadata.slot_mapping is common.slot_mapping
    config = EngineConfig(max_model_len=64)
    captured = dummy_batch(config, FULL, 3, 1, CPU)
    assert bind().builder.build_for_cudagraph_capture(captured).num_actual_tokens == 3


def test_another_group_s_blocks_are_taken_over_as_the_wrapped_back_end_does() -> None:
    builder = bind().builder
    metadata = builder.build(0, batch([(4, 0, 1)]))
    table, slots = torch.tensor([[5]], dtype=torch.int32), torch.tensor([-1])
    updated = builder.update_block_table(metadata, table, slots)
    assert updated.block_table is table
    assert updated.num_actual_tokens == 1


class AlwaysBuilder(SeeingBuilder):
    """Allows every graph, or, by its settings, none."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: FullAttentionSpec) -> AttentionCGSupport:
        return AttentionCGSupport.ALWAYS if config.max_num_seqs > 1 else AttentionCGSupport.NEVER


def test_case_01_and_30_the_wrapper_answers_for_itself() -> None:
    """Decodes of one token at most, and never more than the wrapped back end."""
    always = fast_prefill(BackendAdapter("always", AlwaysBuilder, FlashAttentionImpl))
    decode = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    assert always.cudagraph_support(EngineConfig(max_model_len=64), FULL) is decode
    assert always.cudagraph_support(EngineConfig(max_model_len=64, max_num_seqs=1), FULL) is AttentionCGSupport.NEVER
    assert FLASH_ATTN.cudagraph_support(EngineConfig(max_model_len=64), FULL) > decode
    assert bind().cudagraph_support() is decode
    assert fast_prefill(CHUNKED_LOCAL).cudagraph_support(EngineConfig(max_model_len=64), CHUNK) is (
        AttentionCGSupport.NEVER
    )


ROWS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 20)).flatmap(
        lambda row: st.tuples(st.just(row[0]), st.just(row[1]), st.integers(0, row[0]))
    ),
    min_size=1,
    max_size=5,
)


def outputs(
    adapter: BackendAdapter[M, S], spec: S, heads: AttentionLayerConfig, rows: Sequence[Row], seed: int
) -> tuple[Tensor, Tensor]:
    """What the tokens that run get: by a layer that stores and runs for all, and by one that shares its cache."""
    common = batch(rows)
    fast = fast_prefill(adapter)
    config = EngineConfig(max_model_len=64, layers={"l0": heads, "l1": heads})
    layer = adapter.layer("l0", heads)
    reader = fast.sharing_layer("l1", heads, layer)
    group = adapter.bind(spec, [layer], config, CPU)
    reading = fast.bind(spec, [reader], config, CPU, (LOGITS_TOKENS,))
    num_blocks = 1 + int(common.block_table_tensor.max())
    caches = with_sharing_layers(allocate_kv_caches([group], num_blocks, CPU), [group, reading])
    assert caches[reader] is caches[layer]
    generator = torch.Generator().manual_seed(seed)
    if caches[layer].is_floating_point():
        caches[layer].copy_(torch.randn(caches[layer].shape, generator=generator))
    query = torch.randn(common.num_actual_tokens, 6, 16, generator=generator)
    key, value = torch.randn(2, common.num_actual_tokens, 2, 16, generator=generator).unbind()
    step = Step()
    group.build(common, step)
    reading.build(common, step)
    everything = layer.impl.forward(query, key, value, kv_cache=caches[layer], attn_metadata=step[layer])
    stored = caches[layer].clone()
    kept = running(common)
    got = reader.impl.read(query[kept], kv_cache=caches[reader], attn_metadata=step[reader])
    assert torch.equal(stored.view(torch.uint8), caches[layer].view(torch.uint8))
    return everything[kept], got


BACK_ENDS: dict[str, Callable[[Sequence[Row], int], tuple[Tensor, Tensor]]] = {
    "flash_attn": lambda rows, seed: outputs(FLASH_ATTN, FULL, HEADS, rows, seed),
    "flash_attn, window": lambda rows, seed: outputs(FLASH_ATTN, WINDOW, WINDOWED, rows, seed),
    "chunked_local": lambda rows, seed: outputs(CHUNKED_LOCAL, CHUNK, CHUNKED, rows, seed),
    "flashinfer": lambda rows, seed: outputs(FLASHINFER, FULL, HEADS, rows, seed),
    "triton": lambda rows, seed: outputs(TRITON, WINDOW, WINDOWED, rows, seed),
    "hpc": lambda rows, seed: outputs(HPC, FULL, HEADS, rows, seed),
    "fp8_kv": lambda rows, seed: outputs(
        FP8_KV, quantised_spec(FULL, KVQuantMode.FP8_PER_TOKEN_HEAD), HEADS, rows, seed
    ),
    "turboquant": lambda rows, seed: outputs(
        TURBOQUANT, quantised_spec(FULL, KVQuantMode.TURBOQUANT_4BIT_NC), HEADS, rows, seed
    ),
}


@pytest.mark.parametrize("name", list(BACK_ENDS))
@settings(max_examples=15, deadline=None)
@given(rows=ROWS, seed=st.integers(0, 99))
def test_a_token_that_runs_gets_what_it_gets_among_all(name: str, rows: list[Row], seed: int) -> None:
    expected, got = BACK_ENDS[name](rows, seed)
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-6)


@settings(max_examples=25, deadline=None)
@given(rows=ROWS, window=st.booleans(), seed=st.integers(0, 99))
def test_attention_over_a_shared_cache_is_as_defined(rows: list[Row], window: bool, seed: int) -> None:
    common = batch(rows)
    heads, spec = (WINDOWED, WINDOW) if window else (HEADS, FULL)
    builder = FAST_PREFILL.builder(spec, ["l1"], EngineConfig(max_model_len=64, layers={"l1": heads}), CPU)
    generator = torch.Generator().manual_seed(seed)
    shape = FAST_PREFILL.kv_cache_shape(1 + int(common.block_table_tensor.max()), spec)
    cache = torch.randn(shape, generator=generator)
    query = torch.randn(common.num_actual_tokens, 6, 16, generator=generator)

    def attend(dtype: torch.dtype) -> Tensor:
        keys, values = (part.to(dtype, copy=True) for part in split_kv(cache, KVCacheLayout.BLOCK_FIRST))
        return attend_by_mask(
            common, query.to(dtype), keys, values, 0.25, lambda at, to: to <= at and (not window or at - to < 5)
        )

    kept = running(common)
    layer = FAST_PREFILL.sharing_layer("l1", heads, FLASH_ATTN.layer("l0", heads))
    got = layer.impl.read(query[kept], kv_cache=cache, attn_metadata=builder.build(0, common))
    comparison = compare(got, attend(torch.float32)[kept], attend(torch.float64)[kept])
    assert comparison.passed, comparison


@pytest.mark.parametrize("rows", [[(3, 6, 0), (4, 2, 0)], [(0, 3, 0), (5, 0, 0), (0, 0, 0)], [(0, 3, 0)], []])
def test_no_token_is_a_batch_too(rows: list[Row]) -> None:
    common = batch(rows)
    metadata = bind().builder.build(0, common)
    assert (metadata.num_actual_tokens, metadata.max_query_len) == (0, 0)
    assert ints(metadata.query_start_loc) == [0] * (len(rows) + 1)
    if rows:
        layer = FAST_PREFILL.sharing_layer("l1", HEADS, FLASH_ATTN.layer("l0", HEADS))
        cache = torch.zeros(FAST_PREFILL.kv_cache_shape(9, FULL))
        assert layer.impl.read(torch.empty(0, 6, 16), kv_cache=cache, attn_metadata=metadata).shape == (0, 6, 16)


def test_logits_that_no_row_ends_with_are_refused() -> None:
    def build(tokens: list[int]) -> FlashAttentionMetadata:
        common = make_batch([3, 4], [2, 2], 4)
        common.inputs.put(LOGITS_TOKENS, torch.tensor(tokens, dtype=torch.int64))
        return bind().builder.build(0, common)

    build([2, 5, 6])
    with pytest.raises(ValueError, match="LOGITS_TOKENS holds token 4 where 6 must be"):
        build([2, 4])
    with pytest.raises(ValueError, match="LOGITS_TOKENS holds token 0 where 1 must be"):
        build([0, 2, 6])
    for wrong in ([2, 7], [6, 2], [2, 2], [-1, 2], [6] * 5):
        with pytest.raises(ValueError, match="LOGITS_TOKENS holds"):
            build(wrong)
    with pytest.raises(KeyError, match="nothing is held for <BuildInput 'logits_tokens'>"):
        bind().builder.build(0, make_batch([3], [0], 4))


def test_what_cannot_be_wrapped_or_bound_is_refused() -> None:
    with pytest.raises(TypeError, match="adapter 'fast_prefill' reads the caches of 'flash_attn' and has none"):
        fast_prefill(FAST_PREFILL)
    with pytest.raises(TypeError, match="adapter 'fast_prefill' reads caches of 'flash_attn'; chunk that one"):
        chunked_local(FAST_PREFILL)
    with pytest.raises(TypeError, match=r"adapter 'encoder_only': EncoderOnlyImpl has no read\(\)"):
        fast_prefill(ENCODER_ONLY)
    with pytest.raises(TypeError, match=r"adapter 'mla': MLAImpl has no read\(\)"):
        fast_prefill(MLA)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - refused by the checkers, too
    config = EngineConfig(max_model_len=64, layers={"l0": HEADS})
    own = FAST_PREFILL.layer("l0", HEADS)
    with pytest.raises(BindError, match="reads caches that 'flash_attn' has stored, but layer 'l0' has one of its own"):
        FAST_PREFILL.bind(FULL, [own], config, CPU, (LOGITS_TOKENS,))
    reader = FAST_PREFILL.sharing_layer("l0", HEADS, FLASH_ATTN.layer("first", HEADS))
    with pytest.raises(BindError, match=r"needs \['logits_tokens'\] in common.inputs"):
        FAST_PREFILL.bind(FULL, [reader], config, CPU)


def test_a_spec_alone_never_chooses_it() -> None:
    with pytest.raises(NoBackendError, match="fast_prefill: reads caches that flash_attn has stored, and has none"):
        Registry([FAST_PREFILL]).for_spec(FULL)
    assert Registry([FAST_PREFILL, FLASH_ATTN]).for_spec(FULL).adapter is FLASH_ATTN


def test_two_wrappers_are_two_back_ends() -> None:
    other = fast_prefill(FLASH_ATTN, "fast_prefill")
    assert other is not FAST_PREFILL
    assert other.builder is not FAST_PREFILL.builder


def test_lengths_that_cannot_be_are_refused() -> None:
    common = batch([(1, 3, 1), (3, 2, 1)])
    lens = torch.tensor([4, 2], dtype=torch.int32)
    short = replace(common, seq_lens=lens, seq_lens_cpu=lens, num_computed_tokens_cpu=lens - torch.tensor([1, 3]).int())
    with pytest.raises(ValueError, match="row 1 has 3 new tokens in a sequence of 2"):
        bind().builder.build(0, short)
    with pytest.raises(ValueError, match="there are 2 requests, but seq_lens_cpu has 1 entries"):
        bind().builder.build(0, replace(common, seq_lens_cpu=lens[:1]))
