"""Bailing's linear attention: the recurrence and the inputs of `linear`, under metadata of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import StateAdapter
from genericbuilders.backends.linear import LinearInputs
from genericbuilders.backends.mamba_base import BaseMambaMetadata, BaseMambaMetadataBuilder
from genericbuilders.builder import StateImpl
from genericbuilders.kernels.state.select import select_state_kernels

__all__ = [
    "BAILING_LINEAR",
    "BailingLinearAttentionImpl",
    "BailingLinearAttentionMetadata",
    "BailingLinearAttentionMetadataBuilder",
]


@dataclass
class BailingLinearAttentionMetadata(BaseMambaMetadata):
    """One batch for Bailing's linear attention."""


class BailingLinearAttentionMetadataBuilder(BaseMambaMetadataBuilder[BailingLinearAttentionMetadata]):
    """Rows need no chunks; unlike `linear`, graphs hold rows of candidates, too, by the rule of the base."""

    @property
    @override
    def metadata_type(self) -> type[BailingLinearAttentionMetadata]:
        return BailingLinearAttentionMetadata

    @property
    @override
    def state_axes(self) -> Sequence[Sequence[str]]:
        return (("num_heads", "head_dim", "head_dim"),)


class BailingLinearAttentionImpl(StateImpl[BailingLinearAttentionMetadata, LinearInputs]):
    """The scan, with the best kernel that the states' device and dtype have."""

    @override
    def forward(self, inputs: LinearInputs, kv_cache: Tensor, attn_metadata: BailingLinearAttentionMetadata) -> Tensor:
        """The scan's output, ``[num_tokens, num_heads, head_dim]``; see `StateImpl.forward`."""
        (ssm_state,) = self.states(kv_cache)
        kernels = select_state_kernels(kv_cache.device, self.layer.dtypes)
        log_decay = inputs.log_decay.expand(len(inputs.value), -1)
        return kernels.decay_scan(inputs.query, inputs.key, inputs.value, log_decay, ssm_state, attn_metadata.rows)


BAILING_LINEAR = StateAdapter("bailing_linear", BailingLinearAttentionMetadataBuilder, BailingLinearAttentionImpl)
