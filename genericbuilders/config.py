"""The run's settings that builders, caches and the engine read."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor

__all__ = [
    "AttentionLayerConfig",
    "CommonPrefixRule",
    "EngineConfig",
    "KVCacheLayout",
    "LatentLayerConfig",
    "LayerConfig",
    "StateLayerConfig",
    "check_heads",
    "check_latents",
    "check_reach",
    "check_states",
    "query_heads",
    "state_chunk_size",
]


class KVCacheLayout(StrEnum):
    """The order of the first two axes of a layer's cache.

    ``BLOCK_FIRST`` is ``[num_blocks, 2, num_kv_heads, block_size, head_size]``: a block is one run of bytes.
    ``KV_FIRST`` is ``[2, num_blocks, num_kv_heads, block_size, head_size]``: all keys, then all values.
    """

    BLOCK_FIRST = "block_first"
    KV_FIRST = "kv_first"


@dataclass(frozen=True)
class LayerConfig:
    """What one layer is made of, whatever its kind.

    Attributes:
        kv_cache_layout: how the layer reads its cache; layers of one group may differ in it.
    """

    kv_cache_layout: KVCacheLayout = field(default=KVCacheLayout.BLOCK_FIRST, kw_only=True)


@dataclass(frozen=True)
class AttentionLayerConfig(LayerConfig):
    """What one attention layer is made of, beside what its cache holds.

    Attributes:
        num_heads: query heads.
        num_kv_heads: key-value heads; divides ``num_heads``.
        head_size: elements in one head of a query or a key.
        scale: factor on the scores before the softmax; usually ``head_size ** -0.5``.
        causal: whether a token sees only itself and what came before.
        sliding_window: tokens that a token sees, its own included; ``None`` for all.
        attention_chunk_size: tokens in a chunk, whose tokens see no other chunk; ``None`` for no chunks.
        logits_soft_cap: scores stay within plus and minus this (Gemma 2); ``None`` for no cap.
        alibi_slopes: one for each query head (Press et al. 2022); ``None`` for none.
        sinks: ``[num_heads]``: learned logits that take a share of the softmax and give nothing (GPT-OSS). Weights, not
            settings: they are not compared.

    Raises:
        ValueError: a count is not positive, ``num_kv_heads`` does not divide ``num_heads``, both a window and a chunk
            are set, or there are not as many slopes or sinks as heads.
    """

    num_heads: int
    num_kv_heads: int
    head_size: int
    scale: float
    causal: bool = True
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    logits_soft_cap: float | None = None
    alibi_slopes: tuple[float, ...] | None = None
    sinks: Tensor | None = field(default=None, compare=False, repr=False)

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
        self._check_reach()
        if self.logits_soft_cap is not None and not self.logits_soft_cap > 0:
            raise ValueError(f"logits_soft_cap is {self.logits_soft_cap}; it must be positive, or None for no cap")
        for name, values in (("alibi_slopes", self.alibi_slopes), ("sinks", self.sinks)):
            if values is not None and len(values) != self.num_heads:
                raise ValueError(f"{name} has {len(values)} entries for {self.num_heads} heads; give one for each")

    def _check_reach(self) -> None:
        for name, tokens in (
            ("sliding_window", self.sliding_window),
            ("attention_chunk_size", self.attention_chunk_size),
        ):
            if tokens is not None and tokens < 1:
                raise ValueError(f"{name} is {tokens}; it must be at least 1 token, or None")
        if self.sliding_window is not None and self.attention_chunk_size is not None:
            raise ValueError(
                f"sliding_window {self.sliding_window} and attention_chunk_size {self.attention_chunk_size} are both "
                "set; a layer attends over one or the other"
            )


@dataclass(frozen=True)
class LatentLayerConfig(LayerConfig):
    """What one layer of multi-head latent attention is made of (DeepSeek-V2).

    A query or key has a part without positions and one with; all heads share the latter, and one latent vector from
    which each head's former part and its value are expanded.

    Attributes:
        num_heads: heads.
        kv_lora_rank: elements of the latent vector.
        qk_nope_head_dim: elements of a head's part without positions.
        qk_rope_head_dim: elements of the part with positions.
        v_head_dim: elements of a head's value.
        scale: factor on the scores before the softmax.

    Raises:
        ValueError: a count is not positive.
    """

    num_heads: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    scale: float

    def __post_init__(self) -> None:
        for name in ("num_heads", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")

    @property
    def latent_size(self) -> int:
        """Elements that are cached for a token: the latent vector and the shared key with positions."""
        return self.kv_lora_rank + self.qk_rope_head_dim


@dataclass(frozen=True)
class StateLayerConfig(LayerConfig):
    """What one state-space layer is made of, beside its weights.

    Attributes:
        shapes: shape of each tensor of a state, in elements; as in the layer's `MambaSpec`.
        dtypes: element type of each of them.
        chunk_size: tokens that the layer's prefill takes at a time; 1 if its kernel has no chunks.

    Raises:
        ValueError: no tensor, unequally many shapes and dtypes, a dimension or ``chunk_size`` below 1, or a tensor that
            would not start at a multiple of its element's size.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    chunk_size: int = 1

    def __post_init__(self) -> None:
        if not self.shapes or len(self.shapes) != len(self.dtypes):
            raise ValueError(
                f"{len(self.shapes)} shapes and {len(self.dtypes)} dtypes; a state needs at least one tensor, and a "
                "dtype for each"
            )
        if any(size < 1 for shape in self.shapes for size in shape):
            raise ValueError(f"shapes are {self.shapes}; every dimension must be at least 1")
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size is {self.chunk_size}; it must be at least 1 token")
        offset = 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            if offset % dtype.itemsize:
                raise ValueError(
                    f"the state tensor of shape {shape} in {dtype} would start at byte {offset} of a state, no "
                    f"multiple of {dtype.itemsize}; put the widest element types first"
                )
            offset += math.prod(shape) * dtype.itemsize

    @property
    def state_bytes(self) -> int:
        """Bytes of one state, all tensors together."""
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in zip(self.shapes, self.dtypes, strict=True))


@dataclass(frozen=True)
class CommonPrefixRule:
    """From when on a prefix that all rows of a batch share is attended over once, for all of them together.

    Attributes:
        min_rows: rows at least.
        min_tokens: tokens of the prefix at least.

    Raises:
        ValueError: ``min_rows`` is below 2, or ``min_tokens`` below 1.
    """

    min_rows: int
    min_tokens: int

    def __post_init__(self) -> None:
        for name, least in (("min_rows", 2), ("min_tokens", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")

    @classmethod
    def never(cls) -> CommonPrefixRule:
        """A rule that no batch meets."""
        return cls(sys.maxsize, sys.maxsize)

    def met(self, num_rows: int, num_tokens: int) -> bool:
        """Whether ``num_rows`` rows with a common prefix of ``num_tokens`` tokens are enough."""
        return num_rows >= self.min_rows and num_tokens >= self.min_tokens


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
        common_prefix_rule: when a prefix that all rows of a step share is attended over once, in the back ends that
            can; ``None`` for what was measured to pay: on CPUs the back end's own rule, never elsewhere.
        layers: every layer of the model that has a cache, by name.
    """

    max_model_len: int
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    num_blocks: int | None = None
    dtype: torch.dtype = torch.float32
    enable_prefix_caching: bool = True
    num_speculative_tokens: int = 0
    common_prefix_rule: CommonPrefixRule | None = None
    layers: Mapping[str, LayerConfig] = field(default_factory=dict[str, LayerConfig])

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
    """Check that attention layers have the heads that their cache is made for.

    Raises:
        ValueError: a layer has others, is no attention layer, or is unknown; it is named.
    """
    for name in layer_names:
        layer = _attention_layer(config, name)
        if (layer.num_kv_heads, layer.head_size) != (num_kv_heads, head_size):
            raise ValueError(
                f"layer {name!r} has {layer.num_kv_heads} key-value heads of size {layer.head_size}, but its cache is "
                f"made for {num_kv_heads} of size {head_size}"
            )


def check_latents(config: EngineConfig, layer_names: Sequence[str], head_size: int) -> None:
    """Check that layers of latent attention have the vectors that their cache is made for.

    Raises:
        ValueError: a layer has others, is no such layer, or is unknown; it is named.
    """
    for name in layer_names:
        layer = _layer(config, name)
        if not isinstance(layer, LatentLayerConfig):
            raise ValueError(f"layer {name!r} is described by a {type(layer).__name__}; it has no latent attention")
        if layer.latent_size != head_size:
            raise ValueError(
                f"layer {name!r} caches {layer.latent_size} elements a token ({layer.kv_lora_rank} latent and "
                f"{layer.qk_rope_head_dim} with positions), but its cache is made for {head_size}"
            )


def check_reach(
    config: EngineConfig, layer_names: Sequence[str], sliding_window: int | None, attention_chunk_size: int | None
) -> None:
    """Check that attention layers see as many tokens as their cache is kept for.

    Raises:
        ValueError: a layer has another window or chunk, is no attention layer, or is unknown; it is named.
    """
    for name in layer_names:
        layer = _attention_layer(config, name)
        if (layer.sliding_window, layer.attention_chunk_size) != (sliding_window, attention_chunk_size):
            sees, kept = (
                _reach(layer.sliding_window, layer.attention_chunk_size),
                _reach(sliding_window, attention_chunk_size),
            )
            raise ValueError(f"layer {name!r} sees {sees}, but its cache is kept for {kept}")


def check_states(
    config: EngineConfig,
    layer_names: Sequence[str],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[torch.dtype, ...],
) -> None:
    """Check that state-space layers have the states that their cache is made for.

    Raises:
        ValueError: a layer has others, is no state-space layer, or is unknown; it is named.
    """
    for name in layer_names:
        layer = _state_layer(config, name)
        if (layer.shapes, layer.dtypes) != (shapes, dtypes):
            raise ValueError(
                f"layer {name!r} keeps states of shapes {layer.shapes} in {_told(layer.dtypes)}, but its cache is made "
                f"for {shapes} in {_told(dtypes)}"
            )


def query_heads(config: EngineConfig, layer_names: Sequence[str]) -> int:
    """The number of query heads that all of ``layer_names`` share.

    Each group asks for its own layers: a draft model's layers may differ from the target's.

    Raises:
        ValueError: the layers disagree, one is unknown or no attention layer, or there is none.
    """
    found: dict[int, str] = {}
    for name in layer_names:
        found.setdefault(_attention_layer(config, name).num_heads, name)
    if len(found) != 1:
        raise ValueError(f"layers of one group must share num_heads; got {found or 'no layer at all'}")
    return next(iter(found))


def state_chunk_size(config: EngineConfig, layer_names: Sequence[str]) -> int:
    """The chunk, in tokens, that all of ``layer_names`` share.

    Raises:
        ValueError: the layers disagree, one is unknown or no state-space layer, or there is none.
    """
    found: dict[int, str] = {}
    for name in layer_names:
        found.setdefault(_state_layer(config, name).chunk_size, name)
    if len(found) != 1:
        raise ValueError(f"layers of one group must share chunk_size; got {found or 'no layer at all'}")
    return next(iter(found))


def _attention_layer(config: EngineConfig, name: str) -> AttentionLayerConfig:
    layer = _layer(config, name)
    if not isinstance(layer, AttentionLayerConfig):
        raise ValueError(f"layer {name!r} is described by a {type(layer).__name__}; it is no attention layer")
    return layer


def _state_layer(config: EngineConfig, name: str) -> StateLayerConfig:
    layer = _layer(config, name)
    if not isinstance(layer, StateLayerConfig):
        raise ValueError(f"layer {name!r} is described by a {type(layer).__name__}; it is no state-space layer")
    return layer


def _layer(config: EngineConfig, name: str) -> LayerConfig:
    layer = config.layers.get(name)
    if layer is None:
        raise ValueError(f"layer {name!r} is not in EngineConfig.layers, which knows {sorted(config.layers)}")
    return layer


def _reach(sliding_window: int | None, attention_chunk_size: int | None) -> str:
    if sliding_window is not None:
        return f"a window of {sliding_window} tokens"
    return "all tokens" if attention_chunk_size is None else f"chunks of {attention_chunk_size} tokens"


def _told(dtypes: Sequence[torch.dtype]) -> str:
    return ", ".join(str(dtype) for dtype in dtypes)
