"""Keeping every block of a layer that would give some back."""

from __future__ import annotations

from genericbuilders.specs.attention import FullAttentionSpec, RSWASpec
from genericbuilders.specs.base import KVCacheSpec
from genericbuilders.specs.mla import MLAAttentionSpec, SlidingWindowMLASpec
from genericbuilders.specs.window import ChunkedLocalAttentionSpec, SlidingWindowSpec

__all__ = ["promote_to_full"]


def promote_to_full(spec: KVCacheSpec) -> FullAttentionSpec:
    """The spec of the same layer if all its blocks are kept to the end of a request.

    The layer attends over what it did before: its window or chunk is a field of the result. Pages stay as they are.
    A spec that keeps all blocks already comes back unchanged. Promoted layers of different windows do not merge, but
    `UniformTypeKVCacheSpecs.from_specs` wraps them, and then each keeps its own.

    Raises:
        TypeError: the spec has no full form: a state, an encoder's cache, a reference window, or a type from
            elsewhere whose fields would be lost.
    """
    if isinstance(spec, FullAttentionSpec) and not isinstance(spec, RSWASpec):
        return spec
    # extra_retained_tokens and bounded_replay only say which blocks to give back or to look up: a full cache keeps all.
    if isinstance(spec, SlidingWindowMLASpec) and type(spec) is SlidingWindowMLASpec:
        return MLAAttentionSpec(
            block_size=spec.block_size,
            num_kv_heads=spec.num_kv_heads,
            head_size=spec.head_size,
            dtype=spec.dtype,
            head_size_v=spec.head_size_v,
            kv_quant_mode=spec.kv_quant_mode,
            page_size_padded=spec.page_size_padded,
            num_head_slots=spec.num_head_slots,
            state_content_bytes=spec.state_content_bytes,
            tokens_per_state=spec.tokens_per_state,
            sliding_window=spec.sliding_window,
            cache_dtype_str=spec.cache_dtype_str,
            alignment=spec.alignment,
            model_version=spec.model_version,
        )
    exact = type(spec) in (SlidingWindowSpec, ChunkedLocalAttentionSpec)
    if exact and isinstance(spec, SlidingWindowSpec | ChunkedLocalAttentionSpec):
        return FullAttentionSpec(
            block_size=spec.block_size,
            num_kv_heads=spec.num_kv_heads,
            head_size=spec.head_size,
            dtype=spec.dtype,
            head_size_v=spec.head_size_v,
            kv_quant_mode=spec.kv_quant_mode,
            page_size_padded=spec.page_size_padded,
            num_head_slots=spec.num_head_slots,
            state_content_bytes=spec.state_content_bytes,
            tokens_per_state=spec.tokens_per_state,
            sliding_window=spec.sliding_window if isinstance(spec, SlidingWindowSpec) else None,
            attention_chunk_size=(spec.attention_chunk_size if isinstance(spec, ChunkedLocalAttentionSpec) else None),
        )
    raise TypeError(f"{type(spec).__name__} has no form that keeps all blocks; give its layers a group of their own")
