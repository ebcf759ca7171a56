"""Attention of encoders: every token of a request sees all others of it, in one batch; nothing is cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.paged import is_ordered, layer_scoring
from genericbuilders.builder import AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig, EngineConfig, check_heads
from genericbuilders.kernels.ints import Ints
from genericbuilders.kernels.scoring import Scoring
from genericbuilders.kernels.select import select_kernels
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import EncoderOnlyAttentionSpec

__all__ = ["ENCODER_ONLY", "EncoderOnlyImpl", "EncoderOnlyMetadata", "EncoderOnlyMetadataBuilder"]


@dataclass
class EncoderOnlyMetadata:
    """One batch of whole requests.

    Attributes:
        num_actual_tokens: tokens of all requests.
        max_query_len: the longest request's tokens.
        query_start_loc: ``[num_reqs + 1]`` int32.
    """

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: Tensor


class EncoderOnlyMetadataBuilder(AttentionMetadataBuilder[EncoderOnlyMetadata, EncoderOnlyAttentionSpec]):
    """Takes whole requests: a token that came in an earlier batch could not be seen any more.

    Raises:
        ValueError: a layer's heads are not those of the spec, or a layer is causal, has ALiBi slopes or sees chunks.
    """

    def __init__(
        self,
        kv_cache_spec: EncoderOnlyAttentionSpec,
        layer_names: Sequence[str],
        config: EngineConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        check_heads(config, layer_names, kv_cache_spec.num_kv_heads, kv_cache_spec.head_size)
        ordered = [name for name in layer_names if is_ordered(config, name) or _chunked(config, name)]
        if ordered:
            raise ValueError(
                f"layers {ordered} are causal, have ALiBi slopes or see chunks, but their spec is an "
                "EncoderOnlyAttentionSpec, whose tokens see what comes after them; set causal=False, alibi_slopes=None "
                "and attention_chunk_size=None, or use a cache"
            )

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: EncoderOnlyAttentionSpec) -> AttentionCGSupport:
        """None: requests are of any length, and no decodes."""
        return AttentionCGSupport.NEVER

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> EncoderOnlyMetadata:
        common = common_attn_metadata
        computed: Ints = common.num_computed_tokens_cpu.numpy()
        starts: Ints = common.query_start_loc_cpu.numpy()
        # What the buffers hold for a row without tokens is nobody's.
        if computed.any() and (pieces := (computed != 0) & (starts[1:] > starts[:-1])).any():
            row = int(pieces.argmax())
            raise ValueError(
                f"row {row} comes in pieces: {computed[row]} of its tokens were in an earlier batch; an encoder needs "
                "a request in one batch"
            )
        return EncoderOnlyMetadata(common.num_actual_tokens, common.max_query_len, common.query_start_loc)


def _chunked(config: EngineConfig, name: str) -> bool:
    layer = config.layers[name]
    return isinstance(layer, AttentionLayerConfig) and layer.attention_chunk_size is not None


class EncoderOnlyImpl(AttentionImpl[EncoderOnlyMetadata]):
    """Attends within each request, with the best kernel that the device and dtype have."""

    def __init__(self, layer: AttentionLayerConfig) -> None:
        super().__init__(layer)
        self._scoring: tuple[torch.device, Scoring] | None = None

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: EncoderOnlyMetadata
    ) -> Tensor:
        """Attend; ``kv_cache`` is not read, and may be empty. See `AttentionImpl.forward`.

        Raises:
            ValueError: query or key have other heads than the layer.
        """
        layer = self.layer
        wanted = ((layer.num_heads, layer.head_size), (layer.num_kv_heads, layer.head_size))
        if (query.shape[1:], key.shape[1:]) != wanted:
            raise ValueError(
                f"query is {tuple(query.shape)} and key {tuple(key.shape)}; the layer has {layer.num_heads} query "
                f"heads and {layer.num_kv_heads} key-value heads of size {layer.head_size}"
            )
        if self._scoring is None or self._scoring[0] != query.device:
            self._scoring = (query.device, layer_scoring(layer, query.device))
        starts, longest = attn_metadata.query_start_loc, attn_metadata.max_query_len
        return select_kernels(query.device, query.dtype).varlen_attention(
            query,
            key,
            value,
            cu_seqlens_q=starts,
            cu_seqlens_k=starts,
            max_seqlen_q=longest,
            max_seqlen_k=longest,
            scale=layer.scale,
            causal=False,
            scoring=self._scoring[1],
        )


ENCODER_ONLY = BackendAdapter("encoder_only", EncoderOnlyMetadataBuilder, EncoderOnlyImpl)
