"""Attention within chunks: how a batch is cut, what is refused, and that tokens see their own chunk alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_type

import numpy as np
import pytest
import torch
from attention_batches import attend_by_mask, ints, make_batch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter, BindError, BoundGroup
from genericbuilders.backends.chunked_local import (
    CHUNKED_LOCAL,
    ChunkedLocalBuilder,
    ChunkedSpec,
    chunked_local,
    cut_into_chunks,
)
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionImpl, FlashAttentionMetadata
from genericbuilders.backends.flashinfer import FLASHINFER
from genericbuilders.builder import AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig, EngineConfig, KVCacheLayout
from genericbuilders.kernels import reference
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.tolerance import compare
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import ChunkedLocalAttentionSpec, FullAttentionSpec, MambaSpec, promote_to_full

CPU = torch.device("cpu")


def layer_of(chunk_size: int | None) -> AttentionLayerConfig:
    return AttentionLayerConfig(6, 2, 16, scale=0.25, attention_chunk_size=chunk_size)


def spec_of(chunk_size: int, block_size: int) -> ChunkedLocalAttentionSpec:
    return ChunkedLocalAttentionSpec(
        block_size=block_size, num_kv_heads=2, head_size=16, dtype=torch.float32, attention_chunk_size=chunk_size
    )


def bind(
    chunk_size: int, block_size: int, *, max_model_len: int = 256, max_num_seqs: int = 64, promoted: bool = False
) -> BoundGroup[FlashAttentionMetadata, ChunkedSpec]:
    layer = layer_of(chunk_size)
    config = EngineConfig(max_model_len=max_model_len, max_num_seqs=max_num_seqs, layers={"l0": layer})
    spec: ChunkedSpec = spec_of(chunk_size, block_size)
    return CHUNKED_LOCAL.bind(
        promote_to_full(spec) if promoted else spec, [CHUNKED_LOCAL.layer("l0", layer)], config, CPU
    )


def test_the_metadata_is_the_wrapped_back_end_s() -> None:
    assert_type(CHUNKED_LOCAL, BackendAdapter[FlashAttentionMetadata, ChunkedSpec])
    group = bind(4, 4)
    assert_type(group.builder.build(0, make_batch([1], [0], 4)), FlashAttentionMetadata)
    assert CHUNKED_LOCAL.metadata_type is FlashAttentionMetadata
    assert CHUNKED_LOCAL.spec_types == (ChunkedLocalAttentionSpec, FullAttentionSpec)


def test_the_exact_example() -> None:
    found = cut_into_chunks(np.array([3, 7]), np.array([5, 12]), 5)
    assert ints(found.seq_lens - found.num_computed_tokens) == [3, 5, 2]
    assert ints(found.seq_lens) == [5, 5, 2]
    assert ints(found.row) == [0, 1, 1]
    assert ints(found.first_position) == [0, 5, 10]
    # The same through a builder: the blocks of each chunk, and no other.
    metadata = bind(5, 5).builder.build(0, make_batch([3, 7], [2, 5], 5))
    assert ints(metadata.query_start_loc) == [0, 3, 8, 10]
    assert ints(metadata.seq_lens) == [5, 5, 2]
    assert [ints(row) for row in metadata.block_table] == [[1], [3], [4]]
    assert (metadata.max_query_len, metadata.max_seq_len, metadata.num_actual_tokens) == (5, 5, 10)


@given(
    rows=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40)), max_size=6),
    chunk_size=st.integers(1, 12),
)
def test_every_token_is_in_one_row_with_the_tokens_of_its_chunk(rows: list[tuple[int, int]], chunk_size: int) -> None:
    lens, old = np.array([new for new, _ in rows], int), np.array([before for _, before in rows], int)
    found = cut_into_chunks(lens, lens + old, chunk_size)
    told = [
        (int(row), int(first) + place)
        for row, computed, length, first in zip(
            found.row, found.num_computed_tokens, found.seq_lens, found.first_position, strict=True
        )
        for place in range(int(computed), int(length))
    ]
    assert told == [(row, before + index) for row, (new, before) in enumerate(rows) for index in range(new)]
    assert all(int(first) % chunk_size == 0 for first in found.first_position)
    assert all(0 < int(length) <= chunk_size for length in found.seq_lens)


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=4),
    sizes=st.sampled_from([(1, 1), (4, 4), (8, 4), (6, 3), (64, 16)]),
    promoted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_token_sees_its_chunk_up_to_itself(
    rows: list[tuple[int, int]], sizes: tuple[int, int], promoted: bool, seed: int
) -> None:
    chunk_size, block_size = sizes
    common = make_batch([new for new, _ in rows], [old for _, old in rows], block_size)
    group = bind(chunk_size, block_size, promoted=promoted)
    generator = torch.Generator().manual_seed(seed)
    cache = torch.randn(group.kv_cache_shape(1 + int(common.block_table_tensor.max())), generator=generator)
    query = torch.randn(common.num_actual_tokens, 6, 16, generator=generator)
    key, value = torch.randn(2, common.num_actual_tokens, 2, 16, generator=generator).unbind()

    def attend(dtype: torch.dtype) -> Tensor:
        keys, values = (part.to(dtype, copy=True) for part in split_kv(cache, KVCacheLayout.BLOCK_FIRST))
        reference.write_kv_cache(key.to(dtype), value.to(dtype), keys, values, common.slot_mapping)
        return attend_by_mask(
            common,
            query.to(dtype),
            keys,
            values,
            0.25,
            lambda at, to: to <= at and to // chunk_size == at // chunk_size,
        )

    working, exact = attend(torch.float32), attend(torch.float64)
    metadata = group.builder.build(0, common)
    impl = CHUNKED_LOCAL.layer("l0", layer_of(chunk_size)).impl
    got = impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata)
    comparison = compare(got, working, exact)
    assert comparison.passed, comparison


class AlwaysBuilder(AttentionMetadataBuilder[FlashAttentionMetadata, FullAttentionSpec]):
    """Allows every graph, or, by its settings, only some."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: FullAttentionSpec) -> AttentionCGSupport:
        return AttentionCGSupport.ALWAYS if config.max_num_seqs > 1 else AttentionCGSupport.UNIFORM_BATCH

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashAttentionMetadata:
        raise NotImplementedError


def test_case_01_and_30_the_wrapper_answers_for_itself() -> None:
    always = BackendAdapter("always", AlwaysBuilder, FlashAttentionImpl)
    wrapped = chunked_local(always)
    assert_type(wrapped, BackendAdapter[FlashAttentionMetadata, ChunkedSpec])
    spec = spec_of(4, 4)
    for max_num_seqs in (1, 8):
        config = EngineConfig(max_model_len=64, max_num_seqs=max_num_seqs, layers={"l0": layer_of(4)})
        assert always.cudagraph_support(config, promote_to_full(spec)) > AttentionCGSupport.NEVER
        assert wrapped.cudagraph_support(config, spec) is AttentionCGSupport.NEVER
        group = wrapped.bind(spec, [wrapped.layer("l0", layer_of(4))], config, CPU)
        assert group.cudagraph_support() is AttentionCGSupport.NEVER
    assert wrapped.name == "chunked_local_always"


def test_case_02_virtual_rows_are_not_bounded_by_max_num_seqs() -> None:
    group = bind(4, 4, max_num_seqs=4)
    metadata = group.builder.build(0, make_batch([20] * 4, [0] * 4, 4))
    assert ints(metadata.seq_lens) == [4] * 20
    assert ints(metadata.query_start_loc) == list(range(0, 84, 4))
    assert ints(metadata.block_table.flatten()) == list(range(1, 21))
    # A back end that counts rows counts virtual ones.
    counting = chunked_local(FLASHINFER)
    layer = layer_of(4)
    config = EngineConfig(max_model_len=64, max_num_seqs=4, layers={"l0": layer})
    counted = counting.bind(spec_of(4, 4), [counting.layer("l0", layer)], config, CPU)
    assert counted.builder.build(0, make_batch([20] * 4, [0] * 4, 4)).num_prefills == 20


def test_case_03_a_chunk_beyond_the_context_is_plain_attention() -> None:
    common = make_batch([20, 1], [70, 99], 16)
    # Blocks need not divide a chunk that never ends.
    for chunk_size in (8192, 8191):
        metadata = bind(chunk_size, 16, max_model_len=100).builder.build(0, common)
        assert metadata.block_table is common.block_table_tensor
        assert metadata.query_start_loc is common.query_start_loc
        assert len(metadata.seq_lens) == 2


def test_rows_of_padding_and_empty_batches_have_no_part() -> None:
    builder = bind(4, 4).builder
    padded = builder.build(0, make_batch([0, 6, 0], [9, 3, 0], 4))
    assert ints(padded.seq_lens) == [4, 4, 1]
    empty = builder.build(0, make_batch([0, 0], [9, 3], 4))
    assert (len(empty.seq_lens), ints(empty.query_start_loc), empty.max_query_len) == (0, [0], 0)


def test_bad_input_is_refused_by_name_and_number() -> None:
    with pytest.raises(ValueError, match="attention_chunk_size is 0; it must be at least 1 token"):
        cut_into_chunks(np.array([1]), np.array([1]), 0)
    with pytest.raises(ValueError, match="row 1 has 5 new tokens in a sequence of 4"):
        cut_into_chunks(np.array([1, 5]), np.array([3, 4]), 4)
    with pytest.raises(ValueError, match=r"chunks of 10 tokens, which blocks of 4 tokens do not divide"):
        bind(10, 4)
    plain = replace(promote_to_full(spec_of(4, 4)), attention_chunk_size=None)
    with pytest.raises(ValueError, match=r"have no attention_chunk_size in their FullAttentionSpec"):
        CHUNKED_LOCAL.bind(plain, [CHUNKED_LOCAL.layer("l0", layer_of(None))], EngineConfig(max_model_len=8), CPU)
    config = EngineConfig(max_model_len=8, layers={"l0": layer_of(None)})
    with pytest.raises(ValueError, match="layer 'l0' sees all tokens, but its cache is kept for chunks of 4 tokens"):
        CHUNKED_LOCAL.bind(spec_of(4, 4), [CHUNKED_LOCAL.layer("l0", layer_of(None))], config, CPU)
    with pytest.raises(BindError, match=r"takes ChunkedLocalAttentionSpec or FullAttentionSpec, but .* a MambaSpec"):
        CHUNKED_LOCAL.bind_any(
            MambaSpec(4, ((2,),), (torch.float32,)),
            [CHUNKED_LOCAL.layer("l0", layer_of(4))],
            EngineConfig(max_model_len=8),
            CPU,
        )


@dataclass
class StateMetadata:
    rows: int


class StateBuilder(AttentionMetadataBuilder[StateMetadata, MambaSpec]):
    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> StateMetadata:
        raise NotImplementedError


class StateAttention(AttentionImpl[StateMetadata]):
    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: StateMetadata
    ) -> Tensor:
        raise NotImplementedError


def test_only_full_attention_can_be_wrapped() -> None:
    states = BackendAdapter("states", StateBuilder, StateAttention)
    with pytest.raises(TypeError, match="adapter 'states' takes MambaSpec, no FullAttentionSpec"):
        chunked_local(states)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - refused by the checkers, too


def test_two_wrappers_are_two_back_ends() -> None:
    other = chunked_local(FLASH_ATTN, "chunked_local")
    assert other is not CHUNKED_LOCAL
    assert other.builder is not CHUNKED_LOCAL.builder
    assert issubclass(other.builder, ChunkedLocalBuilder)
