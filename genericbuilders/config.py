"""The run's settings that builders, caches and the engine read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch

__all__ = ["AttentionLayerConfig", "EngineConfig", "KVCacheLayout", "check_heads", "query_heads"]


class KVCacheLayout(StrEnum):
    """The order of the first two axes of a layer's cache.

    ``BLOCK_FIRST`` is ``[num_blocks, 2, num_kv_heads, block_size, head_size]``: a block is one run of bytes.
    ``KV_FIRST`` is ``[2, num_blocks, num_kv_heads, block_size, head_size]``: all keys, then all values.
    """

    BLOCK_FIRST = "block_first"
    KV_FIRST = "kv_first"


@dataclass(frozen=True)
class AttentionLayerConfig:
    """What one layer is made of, beside what its cache holds.

    Attributes:
        num_heads: query heads.
        num_kv_heads: key-value heads; divides ``num_heads``.
        head_size: elements in one head of a query or a key.
        scale: factor on the scores before the softmax; usually ``head_size ** -0.5``.
        causal: whether a token sees only itself and what came before.
        kv_cache_layout: how the layer reads its cache; layers of one group may differ in it.

    Raises:
        ValueError: a count is not positive, or ``num_kv_heads`` does not divide ``num_heads``.
    """

    num_heads: int
    num_kv_heads: int
    head_size: int
    scale: float
    causal: bool = True
    kv_cache_layout: KVCacheLayout = KVCacheLayout.BLOCK_FIRST

    def __post_init__(self) -> None:
        for name in ("num_heads", "num_kv_heads", "head_size"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}: "
                "every key-value head serves the same number of query heads"
            )


@dataclass(frozen=True)
class EngineConfig:
    """One run's limits.

    Attributes:
        max_model_len: tokens in one request, prompt and output together.
        max_num_seqs: requests in one batch.
        max_num_batched_tokens: tokens in one batch (the scheduler's budget).
        block_size: tokens in one cache block of an attention layer.
        num_blocks: blocks in each group's pool, the null block included; ``None`` derives it.
        dtype: of weights, activations and attention caches.
        enable_prefix_caching: whether full blocks are kept for later requests with the same prefix.
        num_speculative_tokens: draft tokens that a decode may carry beside its own.
        layers: every attention layer of the model by name.
    """

    max_model_len: int
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    num_blocks: int | None = None
    dtype: torch.dtype = torch.float32
    enable_prefix_caching: bool = True
    num_speculative_tokens: int = 0
    layers: Mapping[str, AttentionLayerConfig] = field(default_factory=dict[str, AttentionLayerConfig])

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.num_blocks is not None and self.num_blocks < 2:
            raise ValueError(f"num_blocks is {self.num_blocks}; one is the null block, so at least 2 are needed")
        if self.num_speculative_tokens < 0:
            raise ValueError(f"num_speculative_tokens is {self.num_speculative_tokens}; it cannot be negative")


def check_heads(config: EngineConfig, layer_names: Sequence[str], num_kv_heads: int, head_size: int) -> None:
    """Check that layers have the heads that their cache is made for.

    Raises:
        ValueError: a layer has others, or is unknown; it is named.
    """
    for name in layer_names:
        layer = _layer(config, name)
        if (layer.num_kv_heads, layer.head_size) != (num_kv_heads, head_size):
            raise ValueError(
                f"layer {name!r} has {layer.num_kv_heads} key-value heads of size {layer.head_size}, but its cache is "
                f"made for {num_kv_heads} of size {head_size}"
            )


def query_heads(config: EngineConfig, layer_names: Sequence[str]) -> int:
    """The number of query heads that all of ``layer_names`` share.

    Each group asks for its own layers: a draft model's layers may differ from the target's.

    Raises:
        ValueError: the layers disagree, one is unknown, or there is none.
    """
    found: dict[int, str] = {}
    for name in layer_names:
        found.setdefault(_layer(config, name).num_heads, name)
    if len(found) != 1:
        raise ValueError(f"layers of one group must share num_heads; got {found or 'no layer at all'}")
    return next(iter(found))


def _layer(config: EngineConfig, name: str) -> AttentionLayerConfig:
    layer = config.layers.get(name)
    if layer is None:
        raise ValueError(f"layer {name!r} is not in EngineConfig.layers, which knows {sorted(config.layers)}")
    return layer
