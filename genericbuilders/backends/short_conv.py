"""LFM2's gated short convolution: a causal convolution is the whole recurrence, and its last inputs the whole state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import StateAdapter
from genericbuilders.backends.mamba_base import BaseMambaMetadata, BaseMambaMetadataBuilder
from genericbuilders.builder import StateImpl
from genericbuilders.kernels.state.select import select_state_kernels

__all__ = [
    "SHORT_CONV",
    "ShortConvImpl",
    "ShortConvInputs",
    "ShortConvMetadata",
    "ShortConvMetadataBuilder",
    "short_conv_state_shapes",
]


def short_conv_state_shapes(dim: int, conv_width: int) -> tuple[tuple[int, ...]]:
    """The shape of a state: the last inputs, ``[conv_width - 1, dim]``."""
    return ((conv_width - 1, dim),)


@dataclass
class ShortConvMetadata(BaseMambaMetadata):
    """One batch for short convolutions."""


class ShortConvMetadataBuilder(BaseMambaMetadataBuilder[ShortConvMetadata]):
    """Rows need no chunks."""

    @property
    @override
    def metadata_type(self) -> type[ShortConvMetadata]:
        return ShortConvMetadata

    @property
    @override
    def state_axes(self) -> Sequence[Sequence[str]]:
        return (("conv_width - 1", "dim"),)


@dataclass(frozen=True)
class ShortConvInputs:
    """What one short convolution brings.

    Attributes:
        x: ``[num_tokens, dim]``: the gated input.
        gate: ``[num_tokens, dim]``; multiplies the output.
        conv_weight: ``[dim, conv_width]``.
        conv_bias: ``[dim]``, or ``None``.
    """

    x: Tensor
    gate: Tensor
    conv_weight: Tensor
    conv_bias: Tensor | None


class ShortConvImpl(StateImpl[ShortConvMetadata, ShortConvInputs]):
    """Convolution without activation, and the gate."""

    @override
    def forward(self, inputs: ShortConvInputs, kv_cache: Tensor, attn_metadata: ShortConvMetadata) -> Tensor:
        """The gated output, ``[num_tokens, dim]``; see `StateImpl.forward`."""
        (conv_state,) = self.states(kv_cache)
        kernels = select_state_kernels(kv_cache.device, self.layer.dtypes)
        out = kernels.causal_conv(
            inputs.x, inputs.conv_weight, inputs.conv_bias, conv_state, attn_metadata.rows, silu=False
        )
        return out.mul_(inputs.gate)


SHORT_CONV = StateAdapter("short_conv", ShortConvMetadataBuilder, ShortConvImpl)
