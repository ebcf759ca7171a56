from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from fractions import Fraction

import pytest
import torch

from genericbuilders.config import EngineConfig
from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)

F32 = torch.float32
BF16 = torch.bfloat16
CONFIG = EngineConfig(max_model_len=100, max_num_batched_tokens=32)


def full(
    block_size: int = 16,
    *,
    sliding_window: int | None = None,
    attention_chunk_size: int | None = None,
    page_size_padded: int | None = None,
    head_size_v: int = -1,
    tokens_per_state: int | Fraction = 1,
) -> FullAttentionSpec:
    return FullAttentionSpec(
        block_size=block_size,
        num_kv_heads=2,
        head_size=64,
        dtype=F32,
        sliding_window=sliding_window,
        attention_chunk_size=attention_chunk_size,
        page_size_padded=page_size_padded,
        head_size_v=head_size_v,
        tokens_per_state=tokens_per_state,
    )


def window(sliding_window: int, block_size: int = 16, *, extra_retained_tokens: int = 0) -> SlidingWindowSpec:
    return SlidingWindowSpec(
        block_size=block_size,
        num_kv_heads=2,
        head_size=64,
        dtype=F32,
        sliding_window=sliding_window,
        extra_retained_tokens=extra_retained_tokens,
    )


def chunked(attention_chunk_size: int, block_size: int = 16) -> ChunkedLocalAttentionSpec:
    return ChunkedLocalAttentionSpec(
        block_size=block_size,
        num_kv_heads=2,
        head_size=64,
        dtype=F32,
        attention_chunk_size=attention_chunk_size,
    )


def test_full_page_holds_keys_and_values() -> None:
    # 2 heads x 16 tokens x (64 + 64) elements x 4 bytes
    assert full().page_size_bytes == 16_384
    # 100 tokens are 7 blocks of 16
    assert full().max_memory_usage_bytes(CONFIG) == 7 * 16_384
    assert full().max_num_blocks_per_req(CONFIG, 33) == 3


def test_value_heads_may_have_a_size_of_their_own() -> None:
    assert full().head_size_v == 64
    assert full(head_size_v=64) == full()
    # 2 x 16 x (64 + 32) x 4
    assert full(head_size_v=32).page_size_bytes == 12_288


def test_states_may_stand_for_several_tokens_or_part_of_one() -> None:
    assert full(tokens_per_state=4).num_states == 4
    assert full(tokens_per_state=4).page_size_bytes == 4_096
    assert full(tokens_per_state=Fraction(1, 2)).num_states == 32
    with pytest.raises(ValueError, match=r"tokens_per_state 3 does not divide block_size 16"):
        full(tokens_per_state=3)


def test_packed_state_size_is_used_as_given() -> None:
    # A quantised format of 776 bytes a token: 12,416 bytes for 16 tokens.
    spec = MLAAttentionSpec(block_size=16, num_kv_heads=1, head_size=512, dtype=torch.uint8, state_content_bytes=776)
    assert spec.page_size_bytes == 12_416


def test_padding_scales_with_the_block() -> None:
    spec = full(page_size_padded=20_000)
    assert spec.page_size_bytes == 20_000
    assert spec.copy_with_new_block_size(8).page_size_bytes == 10_000
    assert spec.copy_with_new_block_size(32).page_size_bytes == 40_000
    with pytest.raises(ValueError, match=r"padded page of 20001 bytes for 16 tokens has no whole size for 8"):
        full(page_size_padded=20_001).copy_with_new_block_size(8)
    with pytest.raises(ValueError, match=r"page_size_padded is 16383 bytes.*16384"):
        full(page_size_padded=16_383)


def test_window_counts_only_blocks_it_can_touch() -> None:
    # 15 kept + 32 in flight = 47 tokens; starting at a block's last token they touch 1 + 46 -> 4 blocks.
    assert window(16).max_resident_blocks(CONFIG) == 4
    # 16 + 32 = 48 tokens starting at the last token of a block: 1 + 16 + 16 + 15 -> 4 blocks.
    assert window(17).max_resident_blocks(CONFIG) == 4
    # One more token and a fifth block is touched.
    assert window(18).max_resident_blocks(CONFIG) == 4
    assert window(19).max_resident_blocks(CONFIG) == 5
    # Blocks of one token: exactly as many as tokens.
    assert window(16, block_size=1).max_resident_blocks(CONFIG) == 47
    assert window(16, extra_retained_tokens=3).max_resident_blocks(CONFIG) == 5
    # Never more than a full cache.
    assert window(90).max_resident_blocks(CONFIG) == 7


def test_draft_tokens_are_in_flight_too() -> None:
    drafting = EngineConfig(max_model_len=100, max_num_batched_tokens=32, num_speculative_tokens=3)
    assert window(16, block_size=1).max_resident_blocks(drafting) == 50


def test_chunk_may_start_within_a_block() -> None:
    # Chunks start at block starts: 15 + 32 = 47 tokens, 3 blocks.
    assert chunked(16).max_resident_blocks(CONFIG) == 3
    # Chunks of 2 in blocks of 4 start in the middle of one: positions 2, 3 | 4.
    tight = EngineConfig(max_model_len=100, max_num_batched_tokens=2)
    assert chunked(2, block_size=4).max_resident_blocks(tight) == 2


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
@pytest.mark.parametrize("kept", [1, 2, 5, 16])
@pytest.mark.parametrize("budget", [1, 4, 7])
def test_window_and_chunk_equal_the_worst_of_all_steps(block_size: int, kept: int, budget: int) -> None:
    length = 120
    config = EngineConfig(max_model_len=length, max_num_batched_tokens=budget)

    def worst(first_kept: list[int]) -> int:
        held = [0]
        for computed, first in enumerate(first_kept):
            last = min(computed + budget, length) - 1
            held.append(last // block_size - first // block_size + 1)
        return max(held)

    computed = range(length)
    windowed = worst([max(0, c - kept + 1) for c in computed])
    assert window(kept, block_size).max_resident_blocks(config) == windowed
    local = worst([c // kept * kept for c in computed])
    assert chunked(kept, block_size).max_resident_blocks(config) == local


def test_reference_window_may_need_every_token() -> None:
    spec = RSWASpec(block_size=16, num_kv_heads=2, head_size=64, dtype=F32, rswa_window=8)
    assert spec.max_memory_usage_bytes(CONFIG) == 7 * 16_384


def test_sinks_are_shared_blocks() -> None:
    spec = SinkFullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=F32, sink_len=20)
    assert spec.num_shared_blocks == 2
    assert spec.max_resident_blocks(CONFIG) == 7
    assert full().num_shared_blocks == 0


def test_cross_attention_follows_the_encoder() -> None:
    spec = CrossAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=F32, max_encoder_len=1_500)
    assert spec.max_memory_usage_bytes(CONFIG) == 94 * 16_384
    assert spec.max_num_blocks_per_req(CONFIG, 16) == 94
    by_budget = CrossAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=F32)
    assert by_budget.max_resident_blocks(CONFIG) == 2


def test_encoder_only_takes_nothing() -> None:
    spec = EncoderOnlyAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=F32)
    assert spec.max_memory_usage_bytes(CONFIG) == 0
    assert spec.max_num_blocks_per_req(CONFIG, 100) == 0


def test_latent_page_is_one_vector_a_token() -> None:
    spec = MLAAttentionSpec(block_size=64, num_kv_heads=1, head_size=576, dtype=BF16)
    assert spec.page_size_bytes == 64 * 576 * 2
    aligned = MLAAttentionSpec(block_size=64, num_kv_heads=1, head_size=576, dtype=BF16, alignment=10_000)
    assert aligned.page_size_bytes == 80_000
    # 16 x 576 x 2 = 18,432 bytes of content: the rounding starts afresh.
    assert aligned.copy_with_new_block_size(16).page_size_bytes == 20_000
    windowed = SlidingWindowMLASpec(
        block_size=64, num_kv_heads=1, head_size=576, dtype=BF16, sliding_window=128, alignment=10_000
    )
    assert windowed.page_size_bytes == 80_000


@pytest.mark.parametrize("size", [0, -4])
def test_fields_are_checked(size: int) -> None:
    with pytest.raises(ValueError, match=f"SlidingWindowSpec: sliding_window is {size} tokens"):
        window(size)
    with pytest.raises(ValueError, match=f"FullAttentionSpec: sliding_window is {size} tokens"):
        full(sliding_window=size)
    with pytest.raises(ValueError, match=f"attention_chunk_size is {size} tokens"):
        full(attention_chunk_size=size)
    with pytest.raises(ValueError, match=f"attention_chunk_size is {size} tokens"):
        chunked(size)
    with pytest.raises(ValueError, match=f"block_size is {size} tokens"):
        full(block_size=size)
    with pytest.raises(ValueError, match=f"block_size is {size} tokens"):
        full().copy_with_new_block_size(size)
    with pytest.raises(ValueError, match=f"head_size is {size} elements"):
        FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=size, dtype=F32)
    with pytest.raises(ValueError, match=f"num_kv_heads is {size};"):
        FullAttentionSpec(block_size=16, num_kv_heads=size, head_size=64, dtype=F32)
    with pytest.raises(ValueError, match=f"sink_len is {size} tokens"):
        SinkFullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=F32, sink_len=size)
    with pytest.raises(ValueError, match=f"rswa_window is {size} tokens"):
        RSWASpec(block_size=16, num_kv_heads=2, head_size=64, dtype=F32, rswa_window=size)
    with pytest.raises(ValueError, match=f"max_encoder_len is {size} tokens"):
        CrossAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=F32, max_encoder_len=size)
    with pytest.raises(ValueError, match=f"alignment is {size} bytes"):
        MLAAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=F32, alignment=size)
    with pytest.raises(ValueError, match=f"tokens_per_state {size} does not divide"):
        full(tokens_per_state=size)


def test_negative_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="head_size_v is -2 elements"):
        full(head_size_v=-2)
    with pytest.raises(ValueError, match="extra_retained_tokens is -1 tokens"):
        window(8, extra_retained_tokens=-1)


def test_window_and_chunk_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="sliding_window 8 and attention_chunk_size 4 are both set"):
        full(sliding_window=8, attention_chunk_size=4)


def test_specs_are_values() -> None:
    assert hash(full()) == hash(full())
    assert pickle.loads(pickle.dumps(full())) == full()
    assert len({full(), full(), window(8), window(9)}) == 3
    with pytest.raises(FrozenInstanceError):
        setattr(full(), "block_size", 8)  # noqa: B010 - a plain assignment is refused by the checkers already
