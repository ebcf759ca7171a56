"""Mamba's layers (Gu and Dao 2023): a causal convolution, then a selective scan with a state for each channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from genericbuilders.adapter import StateAdapter
from genericbuilders.backends.mamba_base import BaseMambaMetadata, BaseMambaMetadataBuilder
from genericbuilders.builder import StateImpl
from genericbuilders.kernels.state.select import select_state_kernels

__all__ = [
    "MAMBA1",
    "Mamba1Impl",
    "Mamba1Inputs",
    "Mamba1Metadata",
    "Mamba1MetadataBuilder",
    "mamba1_state_shapes",
]


def mamba1_state_shapes(dim: int, state_size: int, conv_width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of a state: the convolution's last inputs, ``[conv_width - 1, dim]``, and the scan's.

    The scan's is ``[dim, state_size]``.

    Args:
        dim: channels of the mixer.
        state_size: elements of a channel's state.
        conv_width: taps of the convolution.
    """
    return (conv_width - 1, dim), (dim, state_size)


@dataclass
class Mamba1Metadata(BaseMambaMetadata):
    """One batch for Mamba's layers."""


class Mamba1MetadataBuilder(BaseMambaMetadataBuilder[Mamba1Metadata]):
    """Rows need no chunks: the scan takes each from its first token to its last."""

    @property
    @override
    def metadata_type(self) -> type[Mamba1Metadata]:
        return Mamba1Metadata

    @property
    @override
    def state_axes(self) -> Sequence[Sequence[str]]:
        return (("conv_width - 1", "dim"), ("dim", "state_size"))


@dataclass(frozen=True)
class Mamba1Inputs:
    """What one Mamba layer brings.

    Attributes:
        x: ``[num_tokens, dim]``, before the convolution.
        gate: ``[num_tokens, dim]``; its SiLU multiplies the scan's output.
        conv_weight: ``[dim, conv_width]``.
        conv_bias: ``[dim]``, or ``None``.
        select: from the convolution's output ``[num_tokens, dim]`` to the step widths ``[num_tokens, dim]`` (positive,
            bias and softplus applied) and the projections of a state's input and output, ``[num_tokens, state_size]``.
        a: ``[dim, state_size]``, negative.
        d: ``[dim]``, or ``None``.
    """

    x: Tensor
    gate: Tensor
    conv_weight: Tensor
    conv_bias: Tensor | None
    select: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
    a: Tensor
    d: Tensor | None


class Mamba1Impl(StateImpl[Mamba1Metadata, Mamba1Inputs]):
    """Convolution, selection, scan and gate, with the best kernels that the states' device and dtypes have."""

    @override
    def forward(self, inputs: Mamba1Inputs, kv_cache: Tensor, attn_metadata: Mamba1Metadata) -> Tensor:
        """The gated output, ``[num_tokens, dim]``; see `StateImpl.forward`."""
        conv_state, ssm_state = self.states(kv_cache)
        kernels = select_state_kernels(kv_cache.device, self.layer.dtypes)
        rows = attn_metadata.rows
        x = kernels.causal_conv(inputs.x, inputs.conv_weight, inputs.conv_bias, conv_state, rows)
        dt, b, c = inputs.select(x)
        out = kernels.selective_scan(x, dt, inputs.a, b, c, inputs.d, ssm_state, rows)
        return out.mul_(F.silu(inputs.gate))


MAMBA1 = StateAdapter("mamba1", Mamba1MetadataBuilder, Mamba1Impl)
