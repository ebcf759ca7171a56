"""What each layer's cache holds, and what it costs: frozen dataclasses and arithmetic, no allocation."""

from __future__ import annotations

from genericbuilders.specs.arithmetic import blocks_spanned, cdiv, round_up
from genericbuilders.specs.attention import (
    SAME_AS_KEY,
    AttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVQuantMode,
    RSWASpec,
    SinkFullAttentionSpec,
)
from genericbuilders.specs.base import KVCacheSpec
from genericbuilders.specs.errors import SpecMergeError
from genericbuilders.specs.frozen_mapping import FrozenMapping
from genericbuilders.specs.kv_cache_config import KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from genericbuilders.specs.mamba import MambaCacheMode, MambaSpec
from genericbuilders.specs.mla import MLAAttentionSpec, SlidingWindowMLASpec
from genericbuilders.specs.promotion import promote_to_full
from genericbuilders.specs.uniform import UniformTypeKVCacheSpecs, iter_layer_specs
from genericbuilders.specs.window import ChunkedLocalAttentionSpec, SlidingWindowSpec

__all__ = [
    "AttentionSpec",
    "ChunkedLocalAttentionSpec",
    "CrossAttentionSpec",
    "EncoderOnlyAttentionSpec",
    "FrozenMapping",
    "FullAttentionSpec",
    "KVCacheConfig",
    "KVCacheGroupSpec",
    "KVCacheSpec",
    "KVCacheTensor",
    "KVQuantMode",
    "MLAAttentionSpec",
    "MambaCacheMode",
    "MambaSpec",
    "RSWASpec",
    "SAME_AS_KEY",
    "SinkFullAttentionSpec",
    "SlidingWindowMLASpec",
    "SlidingWindowSpec",
    "SpecMergeError",
    "UniformTypeKVCacheSpecs",
    "blocks_spanned",
    "cdiv",
    "iter_layer_specs",
    "promote_to_full",
    "round_up",
]
