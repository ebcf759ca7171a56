"""Qwen3-Next's mixer: Gated DeltaNet."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

from genericbuilders.backends.gdn import GDN, GDNInputs, GDNMetadata, gdn_state_shapes
from genericbuilders.model import LoadError
from genericbuilders_transformers.mixers.base import MixerPlace, StateMixer, check_conv, check_shape, refused_module

__all__ = ["GDNMixer", "gdn_mixer"]


def gdn_mixer(module: nn.Module, place: MixerPlace) -> GDNMixer:
    """The mixer that replaces ``module``, on its weights.

    Raises:
        LoadError: it is no mixer of Qwen3-Next, its weights do not fit its settings, or its heads cannot be grouped.
    """
    if not isinstance(module, Qwen3NextGatedDeltaNet):
        raise refused_module(place, module, "Qwen3NextGatedDeltaNet")
    return GDNMixer(module, place)


class GDNMixer(StateMixer[GDNMetadata, GDNInputs]):
    """A mixer with the gated delta rule; called as transformers calls its own.

    Its two projections lie in groups, one for each key head: query, key, the values and gates of that key head's value
    heads, and likewise their betas and decays.
    """

    def __init__(self, source: Qwen3NextGatedDeltaNet, place: MixerPlace) -> None:
        key_heads, value_heads = source.num_k_heads, source.num_v_heads
        key_dim, value_dim, width = source.head_k_dim, source.head_v_dim, source.conv_kernel_size
        if value_heads % key_heads:
            raise LoadError(
                f"{place.name} has {value_heads} value heads, which is no multiple of {key_heads} key heads"
            )
        conv_dim = 2 * key_heads * key_dim + value_heads * value_dim
        share = value_heads // key_heads
        conv_weight = check_conv(place.name, "conv1d", source.conv1d, conv_dim, width)
        for name, weight in (("A_log", source.A_log), ("dt_bias", source.dt_bias)):
            check_shape(place.name, name, weight, (value_heads,))
        out = conv_dim + value_heads * value_dim
        check_shape(place.name, "in_proj_qkvz.weight", source.in_proj_qkvz.weight, (out, source.hidden_size))
        check_shape(place.name, "in_proj_ba.weight", source.in_proj_ba.weight, (2 * value_heads, source.hidden_size))
        check_shape(place.name, "norm.weight", source.norm.weight, (value_dim,))
        shapes = gdn_state_shapes(key_heads, value_heads, key_dim, value_dim, width)
        super().__init__(GDN, place, shapes, (place.dtype, torch.float32))
        self.key_heads = key_heads
        self.value_dim = value_dim
        self.sizes: list[int] = [key_dim, key_dim, share * value_dim, share * value_dim]
        self.in_proj_qkvz = source.in_proj_qkvz
        self.in_proj_ba = source.in_proj_ba
        self.norm = source.norm
        self.out_proj = source.out_proj
        self.conv_weight = nn.Buffer(conv_weight, persistent=False)
        self.conv_bias = source.conv1d.bias
        self.a = nn.Buffer(-source.A_log.detach().float().exp(), persistent=False)
        self.dt_bias = source.dt_bias

    def forward(self, hidden_states: Tensor, **kwargs: object) -> Tensor:
        """The mixer's output, ``[1, num_tokens, hidden_size]``."""
        hidden = hidden_states[0]
        num_tokens = len(hidden)
        grouped = self.in_proj_qkvz(hidden).view(num_tokens, self.key_heads, -1)
        query, key, value, gate = grouped.split(self.sizes, dim=-1)
        beta, decay = self.in_proj_ba(hidden).view(num_tokens, self.key_heads, 2, -1).unbind(2)
        mixed = torch.cat([part.flatten(1) for part in (query, key, value)], dim=-1)
        log_decay = self.a * F.softplus(decay.flatten(1).float() + self.dt_bias)
        scanned = self.run(GDNInputs(mixed, log_decay, beta.flatten(1).sigmoid(), self.conv_weight, self.conv_bias))
        normed = self.norm(scanned.view(-1, self.value_dim), gate.reshape(-1, self.value_dim))
        out: Tensor = self.out_proj(normed.view(num_tokens, -1))
        return out[None]
