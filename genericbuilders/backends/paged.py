"""What back ends of attention over plain keys and values share: their batch, its split, what they refuse, how they run.

Such a back end adds to the batch what its own library wants to know, and hands to that library the layers that it
takes. All other layers, and all where the library is missing, run by this library's own kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.builder import AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig, EngineConfig, check_heads, check_reach
from genericbuilders.kernels.ints import Ints
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.select import AttentionKernels, Unavailable, find_kernels, select_kernels
from genericbuilders.kernels.triton.attention import MAX_HEAD
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.rotary import Rotary
from genericbuilders.specs import AttentionSpec, FullAttentionSpec, KVCacheSpec, KVQuantMode, SlidingWindowSpec

__all__ = [
    "CachedImpl",
    "PagedImpl",
    "PagedMetadata",
    "PagedMetadataBuilder",
    "PlainCacheBuilder",
    "RowSplit",
    "check_counts",
    "check_layers",
    "is_ordered",
    "kernel_support",
    "layer_scoring",
    "packings",
    "plain_cache_shape",
    "refusals",
    "require_plain",
    "split_rows",
]


M = TypeVar("M")
P = TypeVar("P", bound="PagedMetadata")
K = TypeVar("K", bound=AttentionSpec, default=AttentionSpec)


@dataclass
class PagedMetadata:
    """One batch for attention over a paged cache; the fields mean what they mean in vLLM.

    Attributes:
        num_actual_tokens: new tokens, padding not counted.
        max_query_len: the longest row's new tokens.
        query_start_loc: ``[num_reqs + 1]`` int32.
        max_seq_len: the longest row's sequence.
        seq_lens: ``[num_reqs]`` int32.
        block_table: ``[num_reqs, max_blocks]`` int32.
        slot_mapping: ``[num_tokens]`` int64.
        causal: whether a token sees only itself and what came before.
    """

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: Tensor
    max_seq_len: int
    seq_lens: Tensor
    block_table: Tensor
    slot_mapping: Tensor
    causal: bool


@dataclass(frozen=True)
class RowSplit:
    """A batch as decodes, at its front, and all other rows.

    Attributes:
        num_decodes: rows of ``decode_query_len`` tokens each; where no other rows bring tokens, the empty rows behind
            them too, which padding added.
        num_decode_tokens: their tokens.
        num_prefills: rows behind them.
        num_prefill_tokens: their tokens.
        decode_query_len: tokens of each decode; 1 without any.
    """

    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    num_prefill_tokens: int
    decode_query_len: int


def split_rows(common: CommonAttentionMetadata, most: int = 1) -> RowSplit:
    """Split a batch behind the rows at its front that bring equally many tokens, at most ``most`` each.

    Args:
        common: the batch.
        most: tokens of a decode: 1 and its draft tokens.
    """
    count, tokens, longest = common.num_reqs, common.num_actual_tokens, common.max_query_len
    if 0 < longest <= most and tokens == count * longest:
        return RowSplit(count, tokens, 0, 0, longest)
    starts: Ints = common.query_start_loc_cpu.numpy()
    lens = starts[1:] - starts[:-1]
    first = int(lens[0]) if count else 0
    if not count or first > most:
        return RowSplit(0, 0, count, tokens, 1)
    others = lens != first
    decodes = int(others.argmax())
    decodes = decodes if others[decodes] else count
    if not np.count_nonzero(lens[decodes:]):
        return RowSplit(count, tokens, 0, 0, max(first, 1))
    if not first:
        return RowSplit(0, 0, count, tokens, 1)
    decoded = decodes * first
    return RowSplit(decodes, decoded, count - decodes, tokens - decoded, first)


def packings(spec: AttentionSpec) -> list[str]:
    """How a spec's cache is more than a key and a value of one size for each token and head; empty if it is not."""
    return [
        told
        for found, told in (
            (spec.kv_quant_mode is not KVQuantMode.NONE or spec.state_content_bytes is not None, "a quantised cache"),
            (spec.head_size_v != spec.head_size, f"values of {spec.head_size_v} elements"),
            (spec.num_head_slots is not None or spec.tokens_per_state != 1, "packed heads or tokens"),
        )
        if found
    ]


def refusals(spec: KVCacheSpec) -> list[str]:
    """What a spec asks for beyond plain keys and values of all tokens or a window; empty if nothing."""
    if not isinstance(spec, AttentionSpec):
        return [f"a {type(spec).__name__}"]
    odd = packings(spec)
    if isinstance(spec, FullAttentionSpec) and spec.attention_chunk_size is not None:
        odd.append("chunks")
    if type(spec) not in (FullAttentionSpec, SlidingWindowSpec):
        odd.append(f"a {type(spec).__name__}")
    return odd


def require_plain(backend: str, spec: KVCacheSpec, layer_names: Sequence[str]) -> int | None:
    """The window that the cache is kept for, ``None`` for all tokens, of a spec of plain keys and values.

    Raises:
        ValueError: the spec asks for more; `refusals` says what.
    """
    odd = refusals(spec)
    if odd or not isinstance(spec, FullAttentionSpec | SlidingWindowSpec):
        raise ValueError(
            f"layers {list(layer_names)} have {', '.join(odd)}: {spec!r}; {backend} serves plain keys and values, of "
            "all tokens or a window"
        )
    return spec.sliding_window


def check_layers(backend: str, spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig) -> None:
    """Check that a back end of plain keys and values computes what its layers want of their cache.

    Raises:
        ValueError: the spec asks for more, as `require_plain` says, or a layer's heads, window or direction are not
            those of the spec.
    """
    window = require_plain(backend, spec, layer_names)
    check_heads(config, layer_names, spec.num_kv_heads, spec.head_size)
    check_reach(config, layer_names, window, None)
    layers = {name: config.layers[name] for name in layer_names}
    causal = [name for name, layer in layers.items() if isinstance(layer, AttentionLayerConfig) and layer.causal]
    if causal and isinstance(spec, FullAttentionSpec) and spec.non_causal:
        raise ValueError(
            f"layers {causal} are causal, but their spec is non_causal, so that tokens see what comes after them; set "
            "one like the other"
        )


def kernel_support(spec: AttentionSpec) -> AttentionCGSupport:
    """The batches that this library's own kernels attend to on a CUDA device without reading anything back.

    Any, with the Triton kernels; the portable ones read nothing back for decodes of one token alone. Imports nothing.
    """
    if refusals(spec):
        return AttentionCGSupport.NEVER
    found = find_kernels("triton", torch.device("cuda"), spec.dtype)
    if isinstance(found, Unavailable) or spec.head_size > MAX_HEAD:
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    return AttentionCGSupport.ALWAYS


def plain_cache_shape(num_blocks: int, spec: AttentionSpec) -> tuple[int, ...]:
    """``[num_blocks, 2, num_kv_heads, block_size, head_size]``: keys and values of a block side by side."""
    return (num_blocks, 2, spec.num_kv_heads, spec.block_size, spec.head_size)


class PlainCacheBuilder(AttentionMetadataBuilder[M, K]):
    """Its layers' cache is one of plain keys and values, in the spec's dtype."""

    @classmethod
    @override
    def get_kv_cache_shape(cls, num_blocks: int, kv_cache_spec: K) -> tuple[int, ...]:
        return plain_cache_shape(num_blocks, kv_cache_spec)

    @classmethod
    @override
    def get_kv_cache_dtype(cls, kv_cache_spec: K) -> torch.dtype:
        return kv_cache_spec.dtype


class PagedMetadataBuilder(PlainCacheBuilder[P, K]):
    """Of a group of layers its metadata knows the block table and the slots alone, so that groups can share it.

    A subclass whose metadata has more that is worked out from blocks or slots overrides `update_block_table`.
    """

    @override
    def update_block_table(self, metadata: P, blk_table: Tensor, slot_mapping: Tensor) -> P:
        return replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)


def is_ordered(config: EngineConfig, name: str) -> bool:
    """Whether a layer's attention needs to know which of two tokens comes first."""
    layer = config.layers[name]
    return isinstance(layer, AttentionLayerConfig) and (layer.causal or layer.alibi_slopes is not None)


def check_counts(query: Tensor, key: Tensor) -> None:
    """Check that each new token brings a key with its query.

    Raises:
        ValueError: there are more of one than of the other; a layer that stores none has `AttentionImpl.read`.
    """
    if query.shape[0] != key.shape[0]:
        raise ValueError(
            f"there are queries of {query.shape[0]} tokens and keys of {key.shape[0]}; a layer stores "
            "the keys and values of the very tokens that attend"
        )


def layer_scoring(layer: AttentionLayerConfig, device: torch.device) -> Scoring:
    """What the layer's settings do to its scores, with tensors on ``device``."""
    slopes = None
    if layer.alibi_slopes is not None:
        slopes = torch.tensor(layer.alibi_slopes, dtype=torch.float32, device=device)
    sinks = None if layer.sinks is None else layer.sinks.to(device, torch.float32)
    return Scoring(layer.logits_soft_cap, slopes, layer.sliding_window, sinks)


class CachedImpl(AttentionImpl[M]):
    """What computes over a cache of plain keys and values: opens it once, and finds the kernels for it."""

    def __init__(self, layer: AttentionLayerConfig) -> None:
        super().__init__(layer)
        self.scoring: Scoring = PLAIN
        self._opened: tuple[Tensor, AttentionKernels, Tensor, Tensor] | None = None

    def choose_kernels(self, device: torch.device, dtype: torch.dtype) -> AttentionKernels:
        """The kernels for a cache. Unless overridden: the fastest that there are."""
        return select_kernels(device, dtype)

    def open(self, kv_cache: Tensor) -> tuple[AttentionKernels, Tensor, Tensor]:
        """The kernels for a cache, and its keys and values; kept, since a layer's cache stays the same."""
        if self._opened is None or self._opened[0] is not kv_cache:
            self.scoring = layer_scoring(self.layer, kv_cache.device)
            kernels = self.choose_kernels(kv_cache.device, kv_cache.dtype)
            self._opened = (kv_cache, kernels, *split_kv(kv_cache, self.layer.kv_cache_layout))
        return self._opened[1:]


class PagedImpl(CachedImpl[P]):
    """Writes the new keys and values, then attends, with the best kernels that the cache's device and dtype have.

    A subclass overrides `attend`, to which all ways in lead.

    Raises:
        TypeError: a subclass overrides one of `forward` and `forward_rotary`, beside which a model may call the other.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, other in (("forward", "forward_rotary"), ("forward_rotary", "forward")):
            if name in vars(cls) and getattr(cls, other) is getattr(PagedImpl, other):
                raise TypeError(
                    f"{cls.__qualname__} overrides {name}() and not {other}(), which models call as well; override "
                    "attend(), to which both lead, or both"
                )

    @override
    def forward(self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: P) -> Tensor:
        check_counts(query, key)
        kernels, key_cache, value_cache = self.open(kv_cache)
        kernels.write_kv_cache(key, value, key_cache, value_cache, attn_metadata.slot_mapping)
        return self.attend(kernels, query, key_cache, value_cache, attn_metadata)

    @override
    def forward_rotary(
        self, query: Tensor, key: Tensor, value: Tensor, rotary: Rotary, kv_cache: Tensor, attn_metadata: P
    ) -> Tensor:
        check_counts(query, key)
        kernels, key_cache, value_cache = self.open(kv_cache)
        query = kernels.rope_and_cache(
            query, key, value, rotary.cos, rotary.sin, key_cache, value_cache, attn_metadata.slot_mapping
        )
        return self.attend(kernels, query, key_cache, value_cache, attn_metadata)

    @override
    def read(self, query: Tensor, kv_cache: Tensor, attn_metadata: P) -> Tensor:
        kernels, key_cache, value_cache = self.open(kv_cache)
        return self.attend(kernels, query, key_cache, value_cache, attn_metadata)

    def attend(
        self, kernels: AttentionKernels, query: Tensor, key_cache: Tensor, value_cache: Tensor, metadata: P
    ) -> Tensor:
        """Attend over a cache that holds the new tokens.

        An override that does not call this one does all that the layer asks for: ``self.layer.scale``, ``self.scoring``
        (window, soft cap, ALiBi slopes, sinks), and the causal mask if ``self.layer.causal and metadata.causal``. What
        it does not compute, its builder refuses.

        Args:
            kernels: this library's own.
            query: ``[num_tokens, num_heads, head_size]``.
            key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``.
            value_cache: likewise.
            metadata: this batch's.

        Returns:
            ``[num_tokens, num_heads, head_size]``; rows behind the batch's tokens are zero.
        """
        return kernels.paged_attention(
            query,
            key_cache,
            value_cache,
            query_start_loc=metadata.query_start_loc,
            seq_lens=metadata.seq_lens,
            block_table=metadata.block_table,
            scale=self.layer.scale,
            causal=self.layer.causal and metadata.causal,
            max_query_len=metadata.max_query_len,
            max_seq_len=metadata.max_seq_len,
            scoring=self.scoring,
        )
