"""Linear attention whose state decays by a fixed factor a head (lightning attention, Qin et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import StateAdapter
from genericbuilders.backends.mamba_base import BaseMambaMetadata, BaseMambaMetadataBuilder
from genericbuilders.builder import AttentionCGSupport, StateImpl
from genericbuilders.config import EngineConfig
from genericbuilders.kernels.state.select import select_state_kernels
from genericbuilders.specs import MambaSpec

__all__ = [
    "LINEAR",
    "LinearAttentionImpl",
    "LinearAttentionMetadata",
    "LinearAttentionMetadataBuilder",
    "LinearInputs",
    "linear_state_shapes",
]


def linear_state_shapes(num_heads: int, head_dim: int) -> tuple[tuple[int, ...]]:
    """The shape of a state, ``[num_heads, head_dim, head_dim]``: values by keys. There is no convolution."""
    return ((num_heads, head_dim, head_dim),)


@dataclass
class LinearAttentionMetadata(BaseMambaMetadata):
    """One batch for linear attention."""


class LinearAttentionMetadataBuilder(BaseMambaMetadataBuilder[LinearAttentionMetadata]):
    """Rows need no chunks. Models of this kind have no drafts, so that graphs hold decodes of one token only."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: MambaSpec) -> AttentionCGSupport:
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    @property
    @override
    def metadata_type(self) -> type[LinearAttentionMetadata]:
        return LinearAttentionMetadata

    @property
    @override
    def state_axes(self) -> Sequence[Sequence[str]]:
        return (("num_heads", "head_dim", "head_dim"),)


@dataclass(frozen=True)
class LinearInputs:
    """What one layer of linear attention brings.

    Attributes:
        query: ``[num_tokens, num_heads, head_dim]``.
        key: ``[num_tokens, num_heads, head_dim]``.
        value: ``[num_tokens, num_heads, head_dim]``.
        log_decay: ``[num_heads]``, at most 0: minus each head's slope.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    log_decay: Tensor


class LinearAttentionImpl(StateImpl[LinearAttentionMetadata, LinearInputs]):
    """The scan, with the best kernel that the states' device and dtype have."""

    @override
    def forward(self, inputs: LinearInputs, kv_cache: Tensor, attn_metadata: LinearAttentionMetadata) -> Tensor:
        """The scan's output, ``[num_tokens, num_heads, head_dim]``; see `StateImpl.forward`."""
        (ssm_state,) = self.states(kv_cache)
        kernels = select_state_kernels(kv_cache.device, self.layer.dtypes)
        log_decay = inputs.log_decay.expand(len(inputs.value), -1)
        return kernels.decay_scan(inputs.query, inputs.key, inputs.value, log_decay, ssm_state, attn_metadata.rows)


LINEAR = StateAdapter("linear", LinearAttentionMetadataBuilder, LinearAttentionImpl)
