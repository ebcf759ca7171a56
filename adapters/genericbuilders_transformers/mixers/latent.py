"""DeepSeek's latent attention: that of V2 and that of V3, which differ in how positions are rotated."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Attention
from transformers.models.deepseek_v2.modeling_deepseek_v2 import apply_rotary_emb as rotate_v2
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3Attention,
    apply_rotary_pos_emb,
    apply_rotary_pos_emb_interleave,
)

from genericbuilders.backends.mla import MLA, MLAInputs
from genericbuilders.config import LatentLayerConfig
from genericbuilders.model import LoadError, PlacedLayer
from genericbuilders.specs import MLAAttentionSpec
from genericbuilders_transformers.mixers.base import Mixer, MixerPlace, check_shape, refused_module

__all__ = ["LatentAttention", "latent_attention"]


def latent_attention(module: nn.Module, place: MixerPlace) -> LatentAttention:
    """The module that replaces ``module``, on its weights.

    Raises:
        LoadError: it is no attention of DeepSeek-V2 or V3, or its weights do not fit its settings.
    """
    if not isinstance(module, DeepseekV2Attention | DeepseekV3Attention):
        raise refused_module(place, module, "DeepseekV2Attention or DeepseekV3Attention")
    return LatentAttention(module, place)


class LatentAttention(Mixer):
    """Attention whose cache holds latent vectors; called as transformers calls its own."""

    def __init__(self, source: DeepseekV2Attention | DeepseekV3Attention, place: MixerPlace) -> None:
        super().__init__()
        heads, rank = source.num_heads, source.kv_lora_rank
        nope, rope, value = source.qk_nope_head_dim, source.qk_rope_head_dim, source.v_head_dim
        check_shape(place.name, "kv_b_proj.weight", source.kv_b_proj.weight, (heads * (nope + value), rank))
        try:
            config = LatentLayerConfig(heads, rank, nope, rope, value, source.scaling)
        except ValueError as error:
            raise LoadError(f"{place.name}: {error}") from None
        self.layer = MLA.layer(place.name, config)
        spec = MLAAttentionSpec(
            block_size=place.block_size, num_kv_heads=1, head_size=config.latent_size, dtype=place.dtype
        )
        self.placed = PlacedLayer(self.layer, spec)
        self.running = place.running
        self.source = source
        self.kv_up = nn.Buffer(source.kv_b_proj.weight.detach().view(heads, nope + value, rank), persistent=False)

    def forward(
        self, hidden_states: Tensor, position_embeddings: Tensor | tuple[Tensor, Tensor], **kwargs: object
    ) -> tuple[Tensor, None]:
        """The layer's output, ``[1, num_tokens, hidden_size]``, and no weights."""
        source, layer = self.source, self.layer.impl.layer
        nope, rank = layer.qk_nope_head_dim, layer.kv_lora_rank
        query = self._query(hidden_states).view(1, -1, layer.num_heads, nope + layer.qk_rope_head_dim).transpose(1, 2)
        latent: Tensor = source.kv_a_proj_with_mqa(hidden_states)
        q_rope, k_rope = _rotated(source, query[..., nope:], latent[:, None, :, rank:], position_embeddings)
        inputs = MLAInputs(
            torch.cat((query[..., :nope], q_rope), -1)[0].transpose(0, 1),
            torch.cat((source.kv_a_layernorm(latent[0, :, :rank]), k_rope[0, 0]), -1),
            self.kv_up,
        )
        context = self.running.context
        out = self.layer.impl.forward(
            inputs, kv_cache=context.kv_caches[self.layer], attn_metadata=context.step[self.layer]
        )
        projected: Tensor = source.o_proj(out.flatten(1))
        return projected[None], None

    def _query(self, hidden_states: Tensor) -> Tensor:
        source = self.source
        query: Tensor
        if source.q_proj is not None:
            query = source.q_proj(hidden_states)
            return query
        if source.q_a_proj is None or source.q_a_layernorm is None or source.q_b_proj is None:
            raise RuntimeError(f"{self.layer.name} has neither q_proj nor q_a_proj")
        query = source.q_b_proj(source.q_a_layernorm(source.q_a_proj(hidden_states)))
        return query


def _rotated(
    source: DeepseekV2Attention | DeepseekV3Attention,
    query: Tensor,
    key: Tensor,
    position_embeddings: Tensor | tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Queries ``[1, num_heads, num_tokens, rope]`` and keys ``[1, 1, num_tokens, rope]``, as their model rotates."""
    if isinstance(position_embeddings, Tensor):
        return rotate_v2(query, key, position_embeddings)
    cos, sin = position_embeddings
    if isinstance(source, DeepseekV3Attention) and not source.config.rope_interleave:
        return apply_rotary_pos_emb(query, key, cos, sin)
    return apply_rotary_pos_emb_interleave(query, key, cos, sin)
