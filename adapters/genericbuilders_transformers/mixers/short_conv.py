"""LFM2's mixer: a gated short convolution."""

from __future__ import annotations

from torch import Tensor, nn
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv

from genericbuilders.backends.short_conv import (
    SHORT_CONV,
    ShortConvInputs,
    ShortConvMetadata,
    short_conv_state_shapes,
)
from genericbuilders_transformers.mixers.base import MixerPlace, StateMixer, check_conv, check_shape, refused_module

__all__ = ["ShortConvMixer", "short_conv_mixer"]


def short_conv_mixer(module: nn.Module, place: MixerPlace) -> ShortConvMixer:
    """The mixer that replaces ``module``, on its weights.

    Raises:
        LoadError: it is no short convolution of LFM2, or its weights do not fit its settings.
    """
    if not isinstance(module, Lfm2ShortConv):
        raise refused_module(place, module, "Lfm2ShortConv")
    return ShortConvMixer(module, place)


class ShortConvMixer(StateMixer[ShortConvMetadata, ShortConvInputs]):
    """A convolution between two gates; called as transformers calls its own."""

    def __init__(self, source: Lfm2ShortConv, place: MixerPlace) -> None:
        dim, width = source.out_proj.in_features, source.conv_kernel_size
        conv_weight = check_conv(place.name, "conv", source.conv, dim, width)
        check_shape(place.name, "in_proj.weight", source.in_proj.weight, (3 * dim, source.in_proj.in_features))
        super().__init__(SHORT_CONV, place, short_conv_state_shapes(dim, width), (place.dtype,))
        self.in_proj = source.in_proj
        self.out_proj = source.out_proj
        self.conv_weight = nn.Buffer(conv_weight, persistent=False)
        self.conv_bias = source.conv.bias

    def forward(self, hidden_states: Tensor, **kwargs: object) -> Tensor:
        """The mixer's output, ``[1, num_tokens, hidden_size]``."""
        gate_in, gate_out, x = self.in_proj(hidden_states[0]).chunk(3, dim=-1)
        gated = self.run(ShortConvInputs(gate_in * x, gate_out, self.conv_weight, self.conv_bias))
        out: Tensor = self.out_proj(gated)
        return out[None]
