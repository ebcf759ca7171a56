"""Mamba-2's mixers: Mamba2's own and Bamba's, which are built alike."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.models.bamba.modeling_bamba import BambaMixer
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer as HFMamba2Mixer

from genericbuilders.backends.mamba2 import MAMBA2, Mamba2Inputs, Mamba2Metadata, mamba2_state_shapes
from genericbuilders_transformers.mixers.base import MixerPlace, StateMixer, check_conv, check_shape, refused_module

__all__ = ["Mamba2Mixer", "mamba2_mixer"]


def mamba2_mixer(module: nn.Module, place: MixerPlace) -> Mamba2Mixer:
    """The mixer that replaces ``module``, on its weights.

    Raises:
        LoadError: it is no mixer of Mamba2 or Bamba, or its weights do not fit its settings.
    """
    if not isinstance(module, HFMamba2Mixer | BambaMixer):
        raise refused_module(place, module, "Mamba2Mixer or BambaMixer")
    return Mamba2Mixer(module, place)


class Mamba2Mixer(StateMixer[Mamba2Metadata, Mamba2Inputs]):
    """A mixer with a scan in chunks; called as transformers calls its own."""

    def __init__(self, source: HFMamba2Mixer | BambaMixer, place: MixerPlace) -> None:
        heads, size, groups = source.num_heads, source.ssm_state_size, source.n_groups
        dim, width = heads * source.head_dim, source.conv_kernel_size
        conv_dim = dim + 2 * groups * size
        conv_weight = check_conv(place.name, "conv1d", source.conv1d, conv_dim, width)
        for name, weight in (("A_log", source.A_log), ("D", source.D), ("dt_bias", source.dt_bias)):
            check_shape(place.name, name, weight, (heads,))
        check_shape(place.name, "in_proj.weight", source.in_proj.weight, (dim + conv_dim + heads, source.hidden_size))
        check_shape(place.name, "norm.weight", source.norm.weight, (dim,))
        shapes = mamba2_state_shapes(heads, source.head_dim, size, groups, width)
        super().__init__(MAMBA2, place, shapes, (place.dtype, torch.float32), source.chunk_size)
        self.sizes: list[int] = [dim, conv_dim, heads]
        self.in_proj = source.in_proj
        self.norm = source.norm
        self.out_proj = source.out_proj
        self.conv_weight = nn.Buffer(conv_weight, persistent=False)
        self.conv_bias = source.conv1d.bias
        self.a = nn.Buffer(-source.A_log.detach().float().exp(), persistent=False)
        self.d = source.D
        self.dt_bias = source.dt_bias
        low, high = source.time_step_limit or (0.0, float("inf"))
        self.dt_limit: tuple[float, float] = (low, high)

    def forward(self, hidden_states: Tensor, **kwargs: object) -> Tensor:
        """The mixer's output, ``[1, num_tokens, hidden_size]``."""
        gate, xbc, dt = self.in_proj(hidden_states[0]).split(self.sizes, dim=-1)
        inputs = Mamba2Inputs(
            xbc, dt, self.conv_weight, self.conv_bias, self.a, self.d, self.dt_bias, dt_limit=self.dt_limit
        )
        out: Tensor = self.out_proj(self.norm(self.run(inputs), gate))
        return out[None]
