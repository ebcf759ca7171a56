"""Rotary position embedding (RoFormer, Su et al. 2021), in the rotate-half form."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Rotary", "apply_rotary"]


class Rotary(NamedTuple):
    """One batch's rotations; both halves of the last axis of each tensor are alike.

    Attributes:
        cos: ``[num_tokens, rotary_dim]``.
        sin: ``[num_tokens, rotary_dim]``.
    """

    cos: Tensor
    sin: Tensor


def apply_rotary(heads: Tensor, rotary: Rotary) -> Tensor:
    """Rotate the first ``rotary_dim`` elements of every head; the rest stays.

    Args:
        heads: ``[num_tokens, num_heads, head_size]``.
        rotary: this batch's cosines and sines.
    """
    cos, sin = rotary.cos.unsqueeze(1), rotary.sin.unsqueeze(1)
    width = cos.shape[-1]
    turned, kept = heads[..., :width], heads[..., width:]
    swapped = torch.cat((-turned[..., width // 2 :], turned[..., : width // 2]), dim=-1)
    turned = turned * cos + swapped * sin
    return torch.cat((turned, kept), dim=-1) if kept.shape[-1] else turned
