"""Small specs of layers that give blocks back, share some, or take none: 64 bytes a token."""

from __future__ import annotations

import torch

from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)

__all__ = [
    "chunk_spec",
    "cross_spec",
    "encoder_only_spec",
    "latent_window_spec",
    "rswa_spec",
    "sink_spec",
    "window_spec",
]

F32 = torch.float32


def window_spec(window: int, block_size: int = 4, extra: int = 0) -> SlidingWindowSpec:
    return SlidingWindowSpec(
        block_size=block_size,
        num_kv_heads=1,
        head_size=8,
        dtype=F32,
        sliding_window=window,
        extra_retained_tokens=extra,
    )


def latent_window_spec(window: int, block_size: int = 4, bounded_replay: bool = False) -> SlidingWindowMLASpec:
    return SlidingWindowMLASpec(
        block_size=block_size,
        num_kv_heads=1,
        head_size=8,
        dtype=F32,
        sliding_window=window,
        alignment=128,
        bounded_replay=bounded_replay,
    )


def chunk_spec(chunk: int, block_size: int = 4) -> ChunkedLocalAttentionSpec:
    return ChunkedLocalAttentionSpec(
        block_size=block_size, num_kv_heads=1, head_size=8, dtype=F32, attention_chunk_size=chunk
    )


def sink_spec(sink_len: int, block_size: int = 4) -> SinkFullAttentionSpec:
    return SinkFullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype=F32, sink_len=sink_len)


def rswa_spec(window: int, block_size: int = 4) -> RSWASpec:
    return RSWASpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype=F32, rswa_window=window)


def cross_spec(block_size: int = 4, max_encoder_len: int | None = None) -> CrossAttentionSpec:
    return CrossAttentionSpec(
        block_size=block_size, num_kv_heads=1, head_size=8, dtype=F32, max_encoder_len=max_encoder_len
    )


def encoder_only_spec(block_size: int = 4) -> EncoderOnlyAttentionSpec:
    return EncoderOnlyAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype=F32)
