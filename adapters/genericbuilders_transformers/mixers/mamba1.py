"""Mamba's mixers: FalconMamba's and Jamba's, which differ in their norms only."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.falcon_mamba.modeling_falcon_mamba import FalconMambaMixer
from transformers.models.jamba.modeling_jamba import JambaMambaMixer

from genericbuilders.backends.mamba1 import MAMBA1, Mamba1Inputs, Mamba1Metadata, mamba1_state_shapes
from genericbuilders_transformers.mixers.base import MixerPlace, StateMixer, check_conv, check_shape, refused_module

__all__ = ["Mamba1Mixer", "mamba1_mixer"]


def mamba1_mixer(module: nn.Module, place: MixerPlace) -> Mamba1Mixer:
    """The mixer that replaces ``module``, on its weights.

    Raises:
        LoadError: it is no mixer of FalconMamba or Jamba, or its weights do not fit its settings.
    """
    if not isinstance(module, FalconMambaMixer | JambaMambaMixer):
        raise refused_module(place, module, "FalconMambaMixer or JambaMambaMixer")
    return Mamba1Mixer(module, place)


class Mamba1Mixer(StateMixer[Mamba1Metadata, Mamba1Inputs]):
    """A mixer with a selective scan; called as transformers calls its own."""

    def __init__(self, source: FalconMambaMixer | JambaMambaMixer, place: MixerPlace) -> None:
        dim, size, width = source.intermediate_size, source.ssm_state_size, source.conv_kernel_size
        rank = source.time_step_rank
        conv_weight = check_conv(place.name, "conv1d", source.conv1d, dim, width)
        check_shape(place.name, "in_proj.weight", source.in_proj.weight, (2 * dim, source.in_proj.in_features))
        check_shape(place.name, "A_log", source.A_log, (dim, size))
        check_shape(place.name, "D", source.D, (dim,))
        check_shape(place.name, "x_proj.weight", source.x_proj.weight, (rank + 2 * size, dim))
        check_shape(place.name, "dt_proj.weight", source.dt_proj.weight, (dim, rank))
        super().__init__(MAMBA1, place, mamba1_state_shapes(dim, size, width), (place.dtype, torch.float32))
        self.sizes: list[int] = [rank, size, size]
        self.in_proj = source.in_proj
        self.x_proj = source.x_proj
        self.dt_proj = source.dt_proj
        self.out_proj = source.out_proj
        self.dt_norm = source.dt_layernorm
        self.b_norm = source.b_layernorm
        self.c_norm = source.c_layernorm
        self.conv_weight = nn.Buffer(conv_weight, persistent=False)
        self.conv_bias = source.conv1d.bias
        self.a = nn.Buffer(-source.A_log.detach().float().exp(), persistent=False)
        self.d = nn.Buffer(source.D.detach().float(), persistent=False)

    def forward(self, hidden_states: Tensor, **kwargs: object) -> Tensor:
        """The mixer's output, ``[1, num_tokens, hidden_size]``."""
        x, gate = self.in_proj(hidden_states[0]).chunk(2, dim=-1)
        gated = self.run(Mamba1Inputs(x, gate, self.conv_weight, self.conv_bias, self._select, self.a, self.d))
        out: Tensor = self.out_proj(gated)
        return out[None]

    def _select(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dt, b, c = self.x_proj(x).split(self.sizes, dim=-1)
        dt = F.softplus(self.dt_proj(self.dt_norm(dt)).float())
        return dt, self.b_norm(b), self.c_norm(c)
