"""The two attentions of a decoder layer that also looks at an encoder: over its own tokens, and over the encoder's."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor, nn
from transformers.models.bart.modeling_bart import BartAttention
from transformers.models.whisper.modeling_whisper import WhisperAttention

from genericbuilders.adapter import AttentionAdapter
from genericbuilders.backends.cross import CROSS
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.model import LoadError, PlacedLayer
from genericbuilders.specs import CrossAttentionSpec, FullAttentionSpec
from genericbuilders_transformers.fuse import pack
from genericbuilders_transformers.mixers.base import Mixer, MixerPlace, refused_module

__all__ = ["DecoderCrossAttention", "DecoderSelfAttention", "cross_attention", "self_attention"]

_Source: TypeAlias = BartAttention | WhisperAttention


def self_attention(
    module: nn.Module, place: MixerPlace, attention: AttentionAdapter | None = None
) -> DecoderSelfAttention:
    """The module that replaces ``module``, on its weights: attention of a decoder over its own tokens.

    Args:
        module: transformers' own.
        place: where it goes.
        attention: the back end; ``None`` takes `FLASH_ATTN`.

    Raises:
        LoadError: it is no attention of BART or Whisper, or its heads do not fit together.
    """
    return DecoderSelfAttention(_known(module, place), place, FLASH_ATTN if attention is None else attention)


def cross_attention(module: nn.Module, place: MixerPlace, max_encoder_len: int) -> DecoderCrossAttention:
    """The module that replaces ``module``, on its weights: attention of a decoder over its encoder's output.

    Raises:
        LoadError: it is no attention of BART or Whisper, or its heads do not fit together.
    """
    return DecoderCrossAttention(_known(module, place), place, max_encoder_len)


class DecoderSelfAttention(Mixer):
    """Causal attention over a request's own tokens; called as transformers calls its own."""

    def __init__(self, source: _Source, place: MixerPlace, attention: AttentionAdapter) -> None:
        super().__init__()
        self.heads = _heads(source, place, causal=True)
        self.layer = attention.layer(place.name, self.heads)
        spec = FullAttentionSpec(
            block_size=place.block_size,
            num_kv_heads=self.heads.num_kv_heads,
            head_size=self.heads.head_size,
            dtype=place.dtype,
        )
        self.placed = PlacedLayer(self.layer, spec)
        self.running = place.running
        self.qkv_proj = pack(source.q_proj, source.k_proj, source.v_proj)
        self.out_proj = pack(source.out_proj)

    def forward(self, hidden_states: Tensor, **kwargs: object) -> tuple[Tensor, None]:
        """The layer's output, ``[1, num_tokens, hidden_size]``, and no weights."""
        heads, context = self.heads, self.running.context
        query, key, value = self.qkv_proj(hidden_states[0]).view(-1, 3, heads.num_heads, heads.head_size).unbind(1)
        out = self.layer.attend(query, key, value, context.step, context.kv_caches)
        return self.out_proj(out.flatten(1))[None], None


class DecoderCrossAttention(Mixer):
    """Attention over the encoder's output, whose keys and values are made for the rows that start only."""

    def __init__(self, source: _Source, place: MixerPlace, max_encoder_len: int) -> None:
        super().__init__()
        self.heads = _heads(source, place, causal=False)
        self.layer = CROSS.layer(place.name, self.heads)
        spec = CrossAttentionSpec(
            block_size=place.block_size,
            num_kv_heads=self.heads.num_kv_heads,
            head_size=self.heads.head_size,
            dtype=place.dtype,
            max_encoder_len=max_encoder_len,
        )
        self.placed = PlacedLayer(self.layer, spec)
        self.running = place.running
        self.q_proj = pack(source.q_proj)
        self.kv_proj = pack(source.k_proj, source.v_proj)
        self.out_proj = pack(source.out_proj)

    def forward(self, hidden_states: Tensor, key_value_states: Tensor, **kwargs: object) -> tuple[Tensor, None]:
        """Attend.

        Args:
            hidden_states: ``[1, num_tokens, hidden_size]``, of the requests' own tokens.
            key_value_states: ``[1, num_encoder_tokens, hidden_size]``: the encoder's output for the rows that start.
            **kwargs: what transformers passes besides.

        Returns:
            ``[1, num_tokens, hidden_size]``, and no weights.
        """
        heads, context = self.heads, self.running.context
        query = self.q_proj(hidden_states[0]).view(-1, heads.num_heads, heads.head_size)
        given = key_value_states[0]
        # No row starts in most steps, and a packed layer takes no input without rows.
        made = self.kv_proj(given) if len(given) else given.new_empty(0, 2 * heads.num_heads * heads.head_size)
        key, value = made.view(len(given), 2, heads.num_heads, heads.head_size).unbind(1)
        out = self.layer.impl.forward(
            query, key, value, kv_cache=context.kv_caches[self.layer], attn_metadata=context.step[self.layer]
        )
        return self.out_proj(out.flatten(1))[None], None


def _known(module: nn.Module, place: MixerPlace) -> _Source:
    if not isinstance(module, BartAttention | WhisperAttention):
        raise refused_module(place, module, "BartAttention or WhisperAttention")
    return module


def _heads(source: _Source, place: MixerPlace, *, causal: bool) -> AttentionLayerConfig:
    try:
        return AttentionLayerConfig(source.num_heads, source.num_heads, source.head_dim, source.scaling, causal=causal)
    except ValueError as error:
        raise LoadError(f"{place.name}: {error}") from None
