"""What the kernels of sparse attention ask of their inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from genericbuilders.kernels.validation import check_rows

__all__ = ["check_select", "check_sparse"]


def check_select(query: Tensor, weights: Tensor, key_cache: Tensor, topk: int) -> None:
    """Check what the selection of keys is given, as far as shapes say.

    Args:
        query: ``[num_tokens, num_heads, head_size]``.
        weights: ``[num_tokens, num_heads]`` float32, beside a float64 query also float64.
        key_cache: ``[num_blocks, block_size, head_size]``.
        topk: positions of a token.

    Raises:
        ValueError: shapes that do not fit each other, or ``topk`` below 1.
        TypeError: dtypes that differ.
    """
    if topk < 1:
        raise ValueError(f"topk is {topk}; at least 1 token is selected")
    _check_heads(query, key_cache, "key_cache")
    if weights.shape != query.shape[:2] or weights.dtype not in (
        torch.float32,
        torch.promote_types(query.dtype, torch.float32),
    ):
        raise ValueError(
            f"weights is {weights.dtype} {tuple(weights.shape)}; it must be torch.float32 {tuple(query.shape[:2])}, a "
            "number for each of the query's tokens and heads"
        )


def check_sparse(query: Tensor, cache: Tensor, slots: Tensor, value_size: int) -> None:
    """Check what attention over slots is given; where the slots are on the host, that the cache has them.

    Args:
        query: ``[num_tokens, num_heads, head_size]``.
        cache: ``[num_blocks, block_size, head_size]``.
        slots: ``[num_tokens, num_keys]`` int64.
        value_size: elements of a value.

    Raises:
        ValueError: shapes that do not fit each other, or a slot outside the cache.
        TypeError: dtypes that differ.
    """
    _check_heads(query, cache, "cache")
    if not 1 <= value_size <= cache.shape[2]:
        raise ValueError(f"value_size is {value_size}; a value is the front of a vector of {cache.shape[2]} elements")
    if slots.dim() != 2 or len(slots) != len(query) or slots.dtype != torch.int64:
        raise ValueError(
            f"slots is {slots.dtype} {tuple(slots.shape)}; it must be torch.int64 [{len(query)}, num_keys], a row for "
            "each of the query's tokens"
        )
    if slots.device.type == "cpu" and slots.numel():
        low, high = (int(end) for end in slots.aminmax())
        if low < -1 or high >= cache.shape[0] * cache.shape[1]:
            raise ValueError(
                f"slots reach from {low} to {high}; the cache has {cache.shape[0]} blocks of {cache.shape[1]}, and -1 "
                "is nothing"
            )


def _check_heads(query: Tensor, cache: Tensor, name: str) -> None:
    check_rows("query", query, 3)
    check_rows(name, cache, 3)
    if query.shape[2] != cache.shape[2]:
        raise ValueError(
            f"query has head_size {query.shape[2]} and {name} {cache.shape[2]}: was the cache made for another layer?"
        )
    if query.dtype != cache.dtype:
        raise TypeError(
            f"query is {query.dtype} and {name} {cache.dtype}: convert the query, or make the cache with "
            f"dtype={query.dtype}"
        )
