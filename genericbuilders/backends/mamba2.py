"""Mamba-2's layers (Dao and Gu 2024): a causal convolution, then a scan whose state decays by one factor a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from genericbuilders.adapter import StateAdapter
from genericbuilders.backends.mamba_base import BaseMambaMetadata, BaseMambaMetadataBuilder
from genericbuilders.builder import StateImpl
from genericbuilders.config import state_chunk_size
from genericbuilders.kernels.state.select import select_state_kernels

__all__ = [
    "MAMBA2",
    "Mamba2Impl",
    "Mamba2Inputs",
    "Mamba2Metadata",
    "Mamba2MetadataBuilder",
    "mamba2_state_shapes",
]


def mamba2_state_shapes(
    num_heads: int, head_dim: int, state_size: int, num_groups: int, conv_width: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of a state: the convolution's last inputs, ``[conv_width - 1, conv_dim]``, and the scan's.

    The convolution runs over values, keys and queries side by side, so ``conv_dim`` is
    ``num_heads * head_dim + 2 * num_groups * state_size``; the scan's state is ``[num_heads, head_dim, state_size]``.
    """
    return (conv_width - 1, num_heads * head_dim + 2 * num_groups * state_size), (num_heads, head_dim, state_size)


@dataclass
class Mamba2Metadata(BaseMambaMetadata):
    """One batch for Mamba-2's layers: rows cut into chunks that end at multiples of ``chunk_size`` in their sequences.

    Where a prefill resumes in mid-chunk, its first chunk is what was missing, so that chunks stand at the same places
    however a prompt is fed. No chunk reaches over two rows.
    """

    @cached_property
    def seq_idx(self) -> Tensor:
        """``[num_chunks]`` int32: each chunk's row."""
        first = self.rows.row_chunks
        every = torch.arange(self.num_reqs, dtype=torch.int32, device=first.device)
        return every.repeat_interleave(first[1:] - first[:-1], output_size=len(self.rows.chunk_state))

    @property
    def cu_chunk_seqlen(self) -> Tensor:
        """``[num_chunks + 1]`` int32: the first token of each chunk, and the end."""
        return self.rows.chunk_start_loc

    @cached_property
    def last_chunk_indices(self) -> Tensor:
        """``[num_reqs]`` int32: each row's last chunk; for a row without tokens the chunk before it."""
        return self.rows.row_chunks[1:] - 1

    @property
    def prep_initial_states(self) -> bool:
        """Whether a prefill continues a state."""
        continued = self.has_initial_states_p
        return continued is not None and bool(continued.any())

    @property
    def cu_chunk_seqlen_p(self) -> Tensor | None:
        """`cu_chunk_seqlen` of the prefills alone, from 0; ``None`` without prefills."""
        return self.cu_chunk_seqlen[self.num_decodes :] - self.num_decode_tokens if self.num_prefills else None

    @property
    def seq_idx_p(self) -> Tensor | None:
        """`seq_idx` of the prefills alone, from 0; ``None`` without prefills."""
        return self.seq_idx[self.num_decodes :] - self.num_decodes if self.num_prefills else None

    @property
    def last_chunk_indices_p(self) -> Tensor | None:
        """`last_chunk_indices` of the prefills alone, from 0; ``None`` without prefills."""
        return self.last_chunk_indices[self.prefill_rows] - self.num_decodes if self.num_prefills else None


class Mamba2MetadataBuilder(BaseMambaMetadataBuilder[Mamba2Metadata]):
    """Cuts prefills at multiples of the layers' ``chunk_size``."""

    @override
    def kernel_chunk(self) -> int:
        return state_chunk_size(self.config, self.layer_names)

    @property
    @override
    def metadata_type(self) -> type[Mamba2Metadata]:
        return Mamba2Metadata

    @property
    @override
    def state_axes(self) -> Sequence[Sequence[str]]:
        return (("conv_width - 1", "conv_dim"), ("num_heads", "head_dim", "state_size"))


@dataclass(frozen=True)
class Mamba2Inputs:
    """What one Mamba-2 layer brings.

    Attributes:
        xbc: ``[num_tokens, conv_dim]``: values, keys (B) and queries (C) side by side, before the convolution.
        dt: ``[num_tokens, num_heads]``: step widths before bias and softplus.
        conv_weight: ``[conv_dim, conv_width]``.
        conv_bias: ``[conv_dim]``, or ``None``.
        a: ``[num_heads]``, negative.
        d: ``[num_heads]``, or ``None``.
        dt_bias: ``[num_heads]``.
        dt_limit: the least and the largest step width.
    """

    xbc: Tensor
    dt: Tensor
    conv_weight: Tensor
    conv_bias: Tensor | None
    a: Tensor
    d: Tensor | None
    dt_bias: Tensor
    dt_limit: tuple[float, float] = (0.0, float("inf"))


class Mamba2Impl(StateImpl[Mamba2Metadata, Mamba2Inputs]):
    """Convolution and scan, with the best kernels that the states' device and dtypes have."""

    @override
    def forward(self, inputs: Mamba2Inputs, kv_cache: Tensor, attn_metadata: Mamba2Metadata) -> Tensor:
        """The scan's output, ``[num_tokens, num_heads * head_dim]``, before gate and norm; see `StateImpl.forward`."""
        conv_state, ssm_state = self.states(kv_cache)
        kernels = select_state_kernels(kv_cache.device, self.layer.dtypes)
        rows = attn_metadata.rows
        num_heads, head_dim, state_size = self.layer.shapes[1]
        size = num_heads * head_dim
        xbc = kernels.causal_conv(inputs.xbc, inputs.conv_weight, inputs.conv_bias, conv_state, rows)
        shared = (xbc.shape[1] - size) // 2
        values = xbc.narrow(1, 0, size).view(-1, num_heads, head_dim)
        b, c = xbc.narrow(1, size, shared), xbc.narrow(1, size + shared, shared)
        dt = F.softplus(inputs.dt.float() + inputs.dt_bias.float())
        low, high = inputs.dt_limit
        if low > 0.0 or high < float("inf"):
            dt = dt.clamp(low, high)
        out = kernels.decay_scan(
            c.view(-1, shared // state_size, state_size),
            b.view(-1, shared // state_size, state_size),
            values * dt[:, :, None].to(values.dtype),
            dt * inputs.a.float(),
            ssm_state,
            rows,
        )
        if inputs.d is not None:
            out = torch.addcmul(out, values, inputs.d[:, None].to(values.dtype))
        return out.flatten(1)


MAMBA2 = StateAdapter("mamba2", Mamba2MetadataBuilder, Mamba2Impl)
