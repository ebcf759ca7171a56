"""Partial results of attention, each over some of the keys, made into the result over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["merge_attention_states", "merge_prefix"]


def merge_attention_states(
    outs: Sequence[Tensor],
    lses: Sequence[Tensor],
    *,
    out: Tensor | None = None,
    lse: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Merge results over disjoint sets of keys exactly, by their log-sum-exps.

    What a part's keys weigh in the whole is ``exp(lse - lse of the whole)``. A part that saw nothing (-inf) adds
    nothing, whatever its result holds; where no part saw anything the result is 0 and its log-sum-exp -inf. Each
    part may have strides of its own, and ``out`` and ``lse`` may be those of a part.

    Args:
        outs: ``[num_tokens, num_heads, value_head_size]`` each, one or more, of one dtype.
        lses: ``[num_tokens, num_heads]`` each, float32 or float64: natural logarithms.
        out: ``[num_tokens, num_heads, value_head_size]`` to write to; made when ``None``.
        lse: ``[num_tokens, num_heads]`` to write the merged log-sum-exps to, by which the result can be merged again.
        dtype: in which to compute; ``None`` for that of the log-sum-exps. float64 is what others are judged by.

    Returns:
        The merged result, of the parts' dtype.

    Raises:
        ValueError: there are no parts, or not as many results as log-sum-exps, or their shapes do not agree.
    """
    if not outs or len(outs) != len(lses):
        raise ValueError(f"{len(outs)} results and {len(lses)} log-sum-exps; give at least one of each, and as many")
    shape = outs[0].shape
    for index, (part, sums) in enumerate(zip(outs, lses, strict=True)):
        if part.shape != shape or part.dtype != outs[0].dtype or sums.shape != shape[:2]:
            raise ValueError(
                f"part {index} is {part.dtype} {tuple(part.shape)} with log-sum-exps {tuple(sums.shape)}; the first is "
                f"{outs[0].dtype} {tuple(shape)}, and log-sum-exps are [num_tokens, num_heads]"
            )
    for name, given, wanted in (("out", out, shape), ("lse", lse, shape[:2])):
        if given is not None and given.shape != wanted:
            raise ValueError(f"{name} is {tuple(given.shape)}; it must be {tuple(wanted)}, as the parts are")
    working = dtype or lses[0].dtype
    stacked = torch.stack([sums.to(working) for sums in lses])
    whole = torch.logsumexp(stacked, 0)
    # -inf on every side would make NaN of the difference.
    shares = torch.where(stacked == -math.inf, 0.0, torch.exp(stacked - whole))[..., None]
    total = torch.zeros(shape, dtype=working, device=outs[0].device)
    for part, share in zip(outs, shares, strict=True):
        total += torch.where(share == 0, 0.0, part.to(working) * share)
    if lse is not None:
        lse.copy_(whole)
    return total.to(outs[0].dtype) if out is None else out.copy_(total)


def merge_prefix(prefix: Tensor, prefix_lse: Tensor, rest: Tensor, rest_lse: Tensor) -> Tensor:
    """`merge_attention_states` of two parts, in as few operations as it takes; ``rest`` may be written to.

    What the prefix weighs is ``sigmoid(prefix_lse - rest_lse)``. A part that saw nothing has to be zero, as kernels
    leave it.

    Args:
        prefix: ``[num_tokens, num_heads, value_head_size]``.
        prefix_lse: ``[num_tokens, num_heads]``, float32 or float64: natural logarithms.
        rest: like ``prefix``.
        rest_lse: like ``prefix_lse``.

    Returns:
        ``[num_tokens, num_heads, value_head_size]``, of the parts' dtype.
    """
    # Where neither saw anything the difference is NaN, and both are zero.
    share = torch.sigmoid(prefix_lse - rest_lse).nan_to_num_(0.0)[..., None]
    if rest.dtype == share.dtype:
        return rest.lerp_(prefix, share)
    return rest.to(share.dtype).lerp_(prefix.to(share.dtype), share).to(rest.dtype)
