"""Attention over quantised caches: the fast forms against the oracle, and the oracle against plain attention."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from attention_batches import ints, make_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from quantised_caches import MODES, lengths, make_codec
from torch import Tensor
from typing_extensions import override

from genericbuilders.kernels import reference as plain
from genericbuilders.kernels.quant import portable, reference
from genericbuilders.kernels.quant.formats import slot_format
from genericbuilders.kernels.quant.select import select_quantised_kernels
from genericbuilders.kernels.quant.slots import SlotCodec, read_pages, write_slots
from genericbuilders.kernels.tolerance import compare
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVQuantMode

by_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
by_kernel = pytest.mark.parametrize("kernel", ["native", "portable"])
HEADS, KV_HEADS, SIZE, SCALE = 6, 2, 16, 0.25
CPU = torch.device("cpu")


def fill(common: CommonAttentionMetadata, codec: SlotCodec, block_size: int, seed: int) -> Tensor:
    """A cache in which every sequence's tokens are written, and all else is rubbish, not-a-numbers included."""
    generator = torch.Generator().manual_seed(seed)
    num_blocks = 2 + int(common.block_table_tensor.max())
    shape = (num_blocks, KV_HEADS, block_size, codec.slot.slot_bytes)
    cache = torch.full(shape, 255, dtype=torch.uint8)
    slots = [
        int(common.block_table_tensor[row, place // block_size]) * block_size + place % block_size
        for row, length in enumerate(ints(common.seq_lens_cpu))
        for place in range(length)
    ]
    key, value = torch.randn(2, len(slots), KV_HEADS, codec.slot.head_size, generator=generator).unbind()
    write_slots(3 * key, value, cache, torch.tensor(slots, dtype=torch.int64), codec)
    return cache


def attend(query: Tensor, cache: Tensor, codec: SlotCodec, common: CommonAttentionMetadata, kernel: str) -> Tensor:
    return select_quantised_kernels(CPU, query.dtype, kernel).paged_attention(
        query,
        cache,
        codec,
        query_start_loc=common.query_start_loc,
        seq_lens=common.seq_lens,
        block_table=common.block_table_tensor,
        scale=SCALE,
        causal=common.causal,
        max_query_len=common.max_query_len,
        max_seq_len=common.max_seq_len,
    )


def by_definition(query: Tensor, cache: Tensor, codec: SlotCodec, common: CommonAttentionMetadata) -> Tensor:
    return reference.paged_attention(
        query,
        cache,
        codec,
        query_start_loc=common.query_start_loc,
        seq_lens=common.seq_lens,
        block_table=common.block_table_tensor,
        scale=SCALE,
        causal=common.causal,
    )


def draw_query(num_tokens: int, seed: int, head_size: int = SIZE) -> Tensor:
    return torch.randn(num_tokens, HEADS, head_size, generator=torch.Generator().manual_seed(seed + 1000))


@by_kernel
@by_mode
@settings(max_examples=20, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=6),
    block_size=st.sampled_from([1, 4, 7, 16]),
    head_size=st.sampled_from([16, 17, 23, 63, 64, 80]),
    causal=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 99),
)
def test_it_attends_as_the_oracle_in_float64_does(
    mode: KVQuantMode,
    kernel: str,
    rows: list[tuple[int, int]],
    block_size: int,
    head_size: int,
    causal: bool,
    dtype: torch.dtype,
    seed: int,
) -> None:
    codec = make_codec(mode, head_size)
    common = make_batch([new for new, _ in rows], [old for _, old in rows], block_size)
    common = replace(common, causal=causal)
    cache = fill(common, codec, block_size, seed)
    query = draw_query(common.num_actual_tokens, seed, head_size).to(dtype)
    got = attend(query, cache, codec, common, kernel)
    exact = by_definition(query.double(), cache, codec, common)
    comparison = compare(got, by_definition(query, cache, codec, common), exact)
    assert comparison.passed, comparison


@by_mode
def test_float64_queries_are_attended_for_in_float64(mode: KVQuantMode) -> None:
    codec = make_codec(mode, SIZE)
    common = make_batch([3, 1, 6], [10, 25, 0], 4)
    cache = fill(common, codec, 4, 5)
    query = draw_query(common.num_actual_tokens, 5).double()
    got = select_quantised_kernels(CPU, torch.float64).paged_attention(
        query,
        cache,
        codec,
        query_start_loc=common.query_start_loc,
        seq_lens=common.seq_lens,
        block_table=common.block_table_tensor,
        scale=SCALE,
        causal=True,
    )
    torch.testing.assert_close(got, by_definition(query, cache, codec, common), atol=1e-12, rtol=1e-12)


@by_mode
@settings(max_examples=10, deadline=None)
@given(
    contexts=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    block_size=st.sampled_from([1, 4, 7]),
    beyond=st.integers(0, 30),
    seed=st.integers(0, 99),
)
def test_decodes_without_reading_lengths_are_the_same(
    mode: KVQuantMode, contexts: list[int], block_size: int, beyond: int, seed: int
) -> None:
    codec = make_codec(mode, SIZE)
    # Every third row has nothing new, though its request is there.
    news = [0 if row % 3 == 2 else 1 for row in range(len(contexts))]
    common = make_batch(news, contexts, block_size)
    cache = fill(common, codec, block_size, seed)
    query = draw_query(common.num_actual_tokens + 2, seed)
    common = replace(common, max_query_len=1, max_seq_len=common.max_seq_len + beyond)
    got = portable.paged_attention(
        query,
        cache,
        codec,
        query_start_loc=common.query_start_loc,
        seq_lens=common.seq_lens,
        block_table=common.block_table_tensor,
        scale=SCALE,
        causal=True,
        max_query_len=1,
        max_seq_len=common.max_seq_len,
        may_read=False,
    )
    working, exact = (by_definition(each, cache, codec, common) for each in (query, query.double()))
    comparison = compare(got, working, exact)
    assert comparison.passed, comparison
    assert not got[-2:].any()


@by_kernel
@by_mode
def test_rows_longer_than_a_span_and_wider_than_a_segment(mode: KVQuantMode, kernel: str) -> None:
    codec = make_codec(mode, SIZE)
    common = make_batch([300, 1, 2, 1], [900, 2500, 0, 30], 16)
    cache = fill(common, codec, 16, 5)
    query = draw_query(common.num_actual_tokens, 5)
    got = attend(query, cache, codec, common, kernel)
    comparison = compare(
        got, by_definition(query, cache, codec, common), by_definition(query.double(), cache, codec, common)
    )
    assert comparison.passed, comparison


@by_kernel
@by_mode
def test_padding_behind_stale_buffers_changes_nothing(mode: KVQuantMode, kernel: str) -> None:
    codec = make_codec(mode, SIZE)
    common = make_batch([3, 1, 3], [5, 0, 9], 4)
    cache = fill(common, codec, 4, 7)
    query = draw_query(7 + 5, 7)
    stale = torch.full((6, common.block_table_tensor.shape[1]), 10**6, dtype=torch.int32)
    stale[:3] = common.block_table_tensor
    stale[0, -(-8 // 4) :] = 10**6
    padded = replace(
        common,
        num_reqs=5,
        query_start_loc=torch.tensor([0, 3, 4, 7, 7, 7], dtype=torch.int32),
        seq_lens=torch.cat((common.seq_lens, torch.tensor([0, 0, 99], dtype=torch.int32))),
        block_table_tensor=stale,
    )
    got = attend(query, cache, codec, padded, kernel)
    assert torch.equal(got[:7], attend(query[:7], cache, codec, common, kernel))
    assert not got[7:].any()


@by_kernel
@by_mode
def test_an_empty_batch_and_rows_without_keys(mode: KVQuantMode, kernel: str) -> None:
    codec = make_codec(mode, SIZE)
    cache = torch.full((2, KV_HEADS, 4, codec.slot.slot_bytes), 255, dtype=torch.uint8)
    empty = make_batch([], [], 4)
    assert attend(draw_query(0, 0), cache, codec, empty, kernel).shape == (0, HEADS, SIZE)
    common = replace(make_batch([2, 1], [0, 0], 4), seq_lens=torch.zeros(2, dtype=torch.int32))
    assert not attend(draw_query(3, 0), cache, codec, common, kernel).any()


class Recording(SlotCodec):
    """Remembers the most elements that were unpacked at a time."""

    most = 0

    @override
    def unpack_keys(self, slots: Tensor) -> tuple[Tensor, Tensor | None]:
        elements, factors = super().unpack_keys(slots)
        self.most = max(self.most, elements.numel())
        return elements, factors


@pytest.mark.parametrize("rows", [[1], [1] * 40, [700], [5] * 20], ids=str)
def test_memory_does_not_grow_with_the_sequences(rows: list[int]) -> None:
    most: list[int] = []
    for context in (20_000, 40_000):
        codec = Recording(slot_format(KVQuantMode.TURBOQUANT_4BIT_NC, SIZE), CPU)
        # All sequences have the same blocks, of which only the time to read them matters.
        common = make_batch(rows, [0] * len(rows), 16)
        table = torch.arange(context // 16, dtype=torch.int32) % 50
        common = replace(
            common,
            block_table_tensor=table.expand(len(rows), -1),
            seq_lens=torch.full((len(rows),), context, dtype=torch.int32),
            max_seq_len=context,
        )
        cache = torch.zeros(50, KV_HEADS, 16, codec.slot.slot_bytes, dtype=torch.uint8)
        attend(draw_query(common.num_actual_tokens, 1), cache, codec, common, "portable")
        most.append(codec.most)
    assert max(most) <= portable.SPAN_ELEMENTS
    assert most[0] == most[1]


@by_mode
@settings(max_examples=15, deadline=None)
@given(spread=st.floats(0.1, 3.0), seed=st.integers(0, 99))
def test_the_error_against_a_plain_cache_is_bounded(mode: KVQuantMode, spread: float, seed: int) -> None:
    """By what storing did to keys and values, all in float64.

    Let no score move by more than ``e``. Then the softmax's weights move by at most ``tanh(e / 2)`` in total variation:
    that is the most that mass ``p`` can grow to ``p r / (p r + 1 - p)`` with ``r = exp(2 e)``. An output element
    moves by the weighted errors of the values, and by that much of the range that plain values have.
    """
    codec = make_codec(mode, SIZE)
    common = make_batch([3, 1, 6], [10, 25, 0], 4)
    generator = torch.Generator().manual_seed(seed)
    shape = (2 + int(common.block_table_tensor.max()), 4, KV_HEADS, SIZE)
    keys, values = (torch.randn(shape, generator=generator, dtype=torch.float64) * spread for _ in range(2))
    cache = torch.zeros(shape[0], KV_HEADS, 4, codec.slot.slot_bytes, dtype=torch.uint8)
    every = torch.arange(shape[0] * 4)
    write_slots(keys.flatten(0, 1), values.flatten(0, 1), cache, every, codec)
    stored_keys, stored_values = read_pages(cache, codec, torch.float64)
    query = draw_query(common.num_actual_tokens, seed).double()
    exact = plain.paged_attention(
        query,
        keys,
        values,
        query_start_loc=common.query_start_loc,
        seq_lens=common.seq_lens,
        block_table=common.block_table_tensor,
        scale=SCALE,
        causal=True,
    )
    got = by_definition(query, cache, codec, common)
    key_error = lengths(stored_keys - keys).amax((0, 1)).repeat_interleave(HEADS // KV_HEADS)
    moved = SCALE * lengths(query) * key_error
    spans = (values.amax((0, 1)) - values.amin((0, 1))).repeat_interleave(HEADS // KV_HEADS, 0)
    value_error = (stored_values - values).abs().amax((0, 1)).repeat_interleave(HEADS // KV_HEADS, 0)
    allowed = value_error + torch.tanh(moved / 2)[..., None] * spans
    assert bool(((got - exact).abs() <= allowed).all())
    # And the bound says something: storing nothing would break it in the mode that stores most.
    if mode is KVQuantMode.INT8_PER_TOKEN_HEAD:
        assert bool((exact.abs() > allowed).any())


def test_not_a_number_stays_none() -> None:
    """Whatever stored it: a model that went wrong must not look as if it had not."""
    for mode in MODES:
        codec = make_codec(mode, SIZE)
        common = make_batch([1], [3], 4)
        cache = fill(common, codec, 4, 0)
        key, value = torch.randn(2, 1, KV_HEADS, SIZE).unbind()
        key[0, 0, 3] = value[0, 1, 5] = torch.nan
        write_slots(key, value, cache, common.slot_mapping, codec)
        for kernel in ("native", "portable", "reference"):
            out = attend(draw_query(1, 0), cache, codec, common, kernel)
            assert out[0, : HEADS // 2].isnan().all(), (mode, kernel)
            assert out[0, HEADS // 2 :].isnan().any(), (mode, kernel)


@by_kernel
def test_bad_input_is_refused(kernel: str) -> None:
    codec = make_codec(KVQuantMode.FP8_PER_TOKEN_HEAD, SIZE)
    common = make_batch([3, 1], [5, 9], 4)
    cache = fill(common, codec, 4, 0)
    query = draw_query(4, 0)
    narrow = replace(common, block_table_tensor=common.block_table_tensor[:, :2])
    with pytest.raises(
        ValueError, match=r"block_table has 2 columns, and (a sequence of|row 1's) 10 tokens in blocks of 4 needs? 3"
    ):
        attend(query, cache, codec, narrow, kernel)
    with pytest.raises(
        ValueError, match=r"head_size 8 and the cache slots of 40 bytes, .* made for head_size 16 in 40"
    ):
        attend(query[..., :8], cache, codec, common, kernel)
    with pytest.raises(ValueError, match="slots of 38 bytes"):
        attend(query, cache[..., :38].contiguous(), codec, common, kernel)
    with pytest.raises(ValueError, match="num_heads 5 is not a multiple of num_kv_heads 2"):
        attend(query[:, :5], cache, codec, common, kernel)
    short = replace(common, seq_lens=torch.tensor([2, 10], dtype=torch.int32))
    with pytest.raises(ValueError, match=r"row 0.* 3 .*2"):
        attend(query, cache, codec, short, kernel)
    with pytest.raises(ValueError, match="row 1 is tokens 3 to 4, of 3 tokens"):
        attend(query[:3], cache, codec, common, kernel)
    with pytest.raises(TypeError, match=r"the cache is torch\.int8; slots are torch\.uint8"):
        attend(query, cache.view(torch.int8), codec, common, kernel)


def test_what_the_compiled_kernel_refuses() -> None:
    codec = make_codec(KVQuantMode.FP8_PER_TOKEN_HEAD, SIZE)
    common = make_batch([3, 1], [5, 9], 4)
    cache = fill(common, codec, 4, 0)
    query = draw_query(4, 0)
    far = common.block_table_tensor.clone()
    far[1, 2] = 99
    with pytest.raises(ValueError, match=r"block_table row 1 names blocks \[99\]; the cache has blocks 0 to"):
        attend(query, cache, codec, replace(common, block_table_tensor=far), "native")
    with pytest.raises(TypeError, match=r"seq_lens is torch\.int64; it must be torch\.int32"):
        attend(query, cache, codec, replace(common, seq_lens=common.seq_lens.long()), "native")
    with pytest.raises(ValueError, match="describes 2 requests, seq_lens 1 and block_table 2"):
        attend(query, cache, codec, replace(common, seq_lens=common.seq_lens[:1]), "native")
    with pytest.raises(ValueError, match="query's last axis has stride 6; it must be 1"):
        attend(query.transpose(1, 2).contiguous().transpose(1, 2), cache, codec, common, "native")
    with pytest.raises(ValueError, match=r"'native' are not available: .* not torch\.float64"):
        attend(query.double(), cache, codec, common, "native")
    with pytest.raises(ValueError, match="no kernels called 'fast'; there are native, portable, reference"):
        attend(query, cache, codec, common, "fast")


def test_without_a_compiler_the_portable_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert select_quantised_kernels(CPU, torch.bfloat16).name == "native"
    assert select_quantised_kernels(CPU, torch.float64).name == "portable"
    monkeypatch.setenv("GENERICBUILDERS_NATIVE", "0")
    assert select_quantised_kernels(CPU, torch.float32).name == "portable"


@by_mode
def test_threads_change_nothing_in_the_compiled_kernel(mode: KVQuantMode) -> None:
    codec = make_codec(mode, SIZE)
    common = make_batch([40, 1, 1], [600, 1500, 0], 16)
    cache = fill(common, codec, 16, 2)
    query = draw_query(common.num_actual_tokens, 2)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = attend(query, cache, codec, common, "native")
        torch.set_num_threads(2)
        assert torch.equal(attend(query, cache, codec, common, "native"), alone)
    finally:
        torch.set_num_threads(before)
