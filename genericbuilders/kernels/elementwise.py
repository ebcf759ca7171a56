"""Rotary embedding, normalisation and gated activations in plain torch, with the native kernels' signatures."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels import portable
from genericbuilders.rotary import Rotary, apply_rotary

__all__ = ["gelu_tanh_and_mul", "rms_norm", "rope_and_cache", "silu_and_mul"]


def rope_and_cache(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cos: Tensor,
    sin: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Rotate and store; see `genericbuilders.kernels.protocols.RopeAndCache` for the arguments.

    Returns:
        The rotated queries ``[num_tokens, num_heads, head_size]``: ``out``, or ``query`` itself.
    """
    rotary = Rotary(cos, sin)
    portable.write_kv_cache(apply_rotary(key, rotary).to(key.dtype), value, key_cache, value_cache, slot_mapping)
    target = query if out is None else out
    return target.copy_(apply_rotary(query, rotary))


def rms_norm(
    hidden: Tensor, weight: Tensor, epsilon: float, *, residual: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """Normalise; see `genericbuilders.kernels.protocols.RmsNorm` for the arguments.

    Squares and their mean are float32 for half-precision inputs.

    Returns:
        ``[num_tokens, hidden_size]``.
    """
    if residual is not None:
        hidden = residual.add_(hidden)
    wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    normed = scaled.to(hidden.dtype) * weight
    return normed if out is None else out.copy_(normed)


def silu_and_mul(gate_up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``silu(gate) * up``; see `genericbuilders.kernels.protocols.GatedActivation` for the arguments."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.mul(F.silu(gate), up, out=out)


def gelu_tanh_and_mul(gate_up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``gelu(gate) * up`` with the tanh form of GELU; see `genericbuilders.kernels.protocols.GatedActivation`."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.mul(F.gelu(gate, approximate="tanh"), up, out=out)
