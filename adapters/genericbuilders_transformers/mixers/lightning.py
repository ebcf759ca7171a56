"""MiniMax's mixer: lightning attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

from genericbuilders.backends.linear import LINEAR, LinearAttentionMetadata, LinearInputs, linear_state_shapes
from genericbuilders_transformers.mixers.base import MixerPlace, StateMixer, check_shape, refused_module

__all__ = ["LightningMixer", "lightning_mixer"]


def lightning_mixer(module: nn.Module, place: MixerPlace) -> LightningMixer:
    """The mixer that replaces ``module``, on its weights.

    Raises:
        LoadError: it is no lightning attention of MiniMax, or its weights do not fit its settings.
    """
    if not isinstance(module, MiniMaxLightningAttention):
        raise refused_module(place, module, "MiniMaxLightningAttention")
    return LightningMixer(module, place)


class LightningMixer(StateMixer[LinearAttentionMetadata, LinearInputs]):
    """Linear attention whose states decay by a factor of each head and layer; called as transformers calls its own."""

    def __init__(self, source: MiniMaxLightningAttention, place: MixerPlace) -> None:
        heads, head_dim = source.num_attention_heads, source.head_dim
        dim = heads * head_dim
        check_shape(place.name, "qkv_proj.weight", source.qkv_proj.weight, (3 * dim, source.qkv_proj.in_features))
        check_shape(place.name, "output_gate.weight", source.output_gate.weight, (dim, source.qkv_proj.in_features))
        check_shape(place.name, "slope_rate", source.slope_rate, (heads, 1, 1))
        super().__init__(LINEAR, place, linear_state_shapes(heads, head_dim), (torch.float32,))
        self.heads = heads
        self.qkv_proj = source.qkv_proj
        self.act_fn = source.act_fn
        self.norm = source.norm
        self.output_gate = source.output_gate
        self.out_proj = source.out_proj
        self.log_decay = nn.Buffer(-source.slope_rate.detach().float().flatten(), persistent=False)

    def forward(self, hidden_states: Tensor, **kwargs: object) -> tuple[Tensor, None]:
        """The mixer's output, ``[1, num_tokens, hidden_size]``, and no weights."""
        hidden = hidden_states[0]
        qkv = self.act_fn(self.qkv_proj(hidden)).view(len(hidden), self.heads, -1)
        query, key, value = qkv.chunk(3, dim=-1)
        out = self.norm(self.run(LinearInputs(query, key, value, self.log_decay)).flatten(1))
        return self.out_proj(self.output_gate(hidden).sigmoid() * out)[None], None
