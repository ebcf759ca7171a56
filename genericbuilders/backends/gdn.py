"""Gated DeltaNet's layers (Yang et al. 2024): a causal convolution, then the gated delta rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import StateAdapter
from genericbuilders.backends.mamba_base import BaseMambaMetadata, BaseMambaMetadataBuilder
from genericbuilders.builder import StateImpl
from genericbuilders.kernels.state.select import select_state_kernels

__all__ = ["GDN", "GDNImpl", "GDNInputs", "GDNMetadata", "GDNMetadataBuilder", "gdn_state_shapes"]

NORM_EPSILON = 1e-6


def gdn_state_shapes(
    num_key_heads: int, num_value_heads: int, key_dim: int, value_dim: int, conv_width: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of a state: the convolution's last inputs, ``[conv_width - 1, conv_dim]``, and the delta rule's.

    The convolution runs over queries, keys and values side by side, so ``conv_dim`` is
    ``2 * num_key_heads * key_dim + num_value_heads * value_dim``; the rule's state is
    ``[num_value_heads, value_dim, key_dim]``.
    """
    conv_dim = 2 * num_key_heads * key_dim + num_value_heads * value_dim
    return (conv_width - 1, conv_dim), (num_value_heads, value_dim, key_dim)


@dataclass
class GDNMetadata(BaseMambaMetadata):
    """One batch for Gated DeltaNet's layers.

    A speculative row's tokens are candidates: the state behind each is stored in a block of its own, and the row's next
    step starts from the one of the last candidate that was accepted.
    """


class GDNMetadataBuilder(BaseMambaMetadataBuilder[GDNMetadata]):
    """Serves decodes, prefills and speculative rows in one batch, in any order."""

    @property
    @override
    def metadata_type(self) -> type[GDNMetadata]:
        return GDNMetadata

    @property
    @override
    def state_axes(self) -> Sequence[Sequence[str]]:
        return (("conv_width - 1", "conv_dim"), ("num_value_heads", "value_dim", "key_dim"))


@dataclass(frozen=True)
class GDNInputs:
    """What one Gated DeltaNet layer brings.

    Attributes:
        mixed_qkv: ``[num_tokens, conv_dim]``: queries, keys and values side by side, before the convolution.
        log_decay: ``[num_tokens, num_value_heads]``, at most 0.
        beta: ``[num_tokens, num_value_heads]``, 0 to 1.
        conv_weight: ``[conv_dim, conv_width]``.
        conv_bias: ``[conv_dim]``, or ``None``.
    """

    mixed_qkv: Tensor
    log_decay: Tensor
    beta: Tensor
    conv_weight: Tensor
    conv_bias: Tensor | None = None


class GDNImpl(StateImpl[GDNMetadata, GDNInputs]):
    """Convolution, normalisation of queries and keys, and the delta rule, with the best kernels there are."""

    @override
    def forward(self, inputs: GDNInputs, kv_cache: Tensor, attn_metadata: GDNMetadata) -> Tensor:
        """The rule's output, ``[num_tokens, num_value_heads, value_dim]``, before gate and norm.

        See `StateImpl.forward`.
        """
        conv_state, ssm_state = self.states(kv_cache)
        kernels = select_state_kernels(kv_cache.device, self.layer.dtypes)
        rows = attn_metadata.rows
        num_heads, value_dim, key_dim = self.layer.shapes[1]
        mixed = kernels.causal_conv(inputs.mixed_qkv, inputs.conv_weight, inputs.conv_bias, conv_state, rows)
        shared = (mixed.shape[1] - num_heads * value_dim) // 2
        query, key = mixed.narrow(1, 0, shared), mixed.narrow(1, shared, shared)
        value = mixed.narrow(1, 2 * shared, num_heads * value_dim)
        return kernels.delta_scan(
            _normalised(query.view(-1, shared // key_dim, key_dim)) * key_dim**-0.5,
            _normalised(key.view(-1, shared // key_dim, key_dim)),
            value.view(-1, num_heads, value_dim),
            inputs.log_decay,
            inputs.beta,
            ssm_state,
            rows,
        )


def _normalised(heads: Tensor) -> Tensor:
    """Each head of length one, where it is not close to zero."""
    return heads * (heads.square().sum(-1, keepdim=True) + NORM_EPSILON).rsqrt()


GDN = StateAdapter("gdn", GDNMetadataBuilder, GDNImpl)
