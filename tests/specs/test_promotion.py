from __future__ import annotations

from dataclasses import dataclass, fields

import pytest
import torch

from genericbuilders.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVQuantMode,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    promote_to_full,
)

WINDOW = SlidingWindowSpec(
    block_size=16,
    num_kv_heads=2,
    head_size=64,
    dtype=torch.uint8,
    head_size_v=32,
    kv_quant_mode=KVQuantMode.INT8_PER_TOKEN_HEAD,
    page_size_padded=9_000,
    num_head_slots=3,
    state_content_bytes=100,
    tokens_per_state=2,
    sliding_window=8,
)
CHUNK = ChunkedLocalAttentionSpec(
    block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, attention_chunk_size=8
)
WINDOW_MLA = SlidingWindowMLASpec(
    block_size=16,
    num_kv_heads=1,
    head_size=64,
    dtype=torch.uint8,
    kv_quant_mode=KVQuantMode.FP8_PER_TENSOR,
    page_size_padded=9_000,
    num_head_slots=3,
    state_content_bytes=100,
    tokens_per_state=2,
    sliding_window=8,
    cache_dtype_str="fp8",
    alignment=512,
    model_version="v4",
)


@pytest.mark.parametrize("spec", [WINDOW, CHUNK, WINDOW_MLA], ids=lambda spec: type(spec).__name__)
def test_promotion_keeps_every_field_that_a_full_cache_has(spec: AttentionSpec) -> None:
    full = promote_to_full(spec)
    dropped = {"extra_retained_tokens", "bounded_replay"}
    for f in fields(spec):
        if f.name not in dropped:
            assert getattr(full, f.name) == getattr(spec, f.name), f.name
    assert full.page_size_bytes == spec.page_size_bytes


def test_promoted_types() -> None:
    assert type(promote_to_full(WINDOW)) is FullAttentionSpec
    assert type(promote_to_full(CHUNK)) is FullAttentionSpec
    assert type(promote_to_full(WINDOW_MLA)) is MLAAttentionSpec
    sink = SinkFullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, sink_len=4)
    assert promote_to_full(sink) is sink


def test_what_has_no_full_form_is_refused() -> None:
    with pytest.raises(TypeError, match="MambaSpec has no form that keeps all blocks"):
        promote_to_full(MambaSpec(16, ((2,),), (torch.float32,)))
    rswa = RSWASpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, rswa_window=8)
    with pytest.raises(TypeError, match="RSWASpec has no form"):
        promote_to_full(rswa)

    @dataclass(frozen=True, kw_only=True)
    class Mine(SlidingWindowSpec):
        extra: int = 1

    mine = Mine(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, sliding_window=8)
    with pytest.raises(TypeError, match="Mine has no form"):
        promote_to_full(mine)
