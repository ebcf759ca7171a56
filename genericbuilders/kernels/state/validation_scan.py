"""What the decaying scan and the delta rule ask of their inputs."""

from __future__ import annotations

from torch import Tensor

from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.state.validation import check_row_tensors

__all__ = ["check_scan"]


def check_scan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor | None,
    ssm_state: Tensor,
    rows: StateRows,
) -> None:
    """Check the arguments of `genericbuilders.kernels.state.protocols.DecayScan`, and with ``beta`` of ``DeltaScan``.

    The tensors may have more tokens than the rows: tokens of padding, for which the output is zero. What the index
    tensors hold is not read.

    Raises:
        ValueError: axes or devices do not fit.
        TypeError: a tensor is not of floating point, or an index not int32.
    """
    if query.dim() != 3 or query.shape != key.shape:
        raise ValueError(
            f"query is {tuple(query.shape)} and key {tuple(key.shape)}; both must be [num_tokens, num_groups, key_size]"
        )
    num_tokens, num_groups, key_size = query.shape
    if value.dim() != 3 or value.shape[0] != num_tokens:
        raise ValueError(
            f"value is {tuple(value.shape)}; it must be [num_tokens, num_heads, value_size], with the query's "
            f"{num_tokens} tokens"
        )
    _, num_heads, value_size = value.shape
    if not num_groups or num_heads % num_groups:
        raise ValueError(
            f"value has {num_heads} heads and query {num_groups} groups; every group serves the same number of heads"
        )
    for name, tensor in (("log_decay", log_decay), ("beta", beta)):
        if tensor is not None and tensor.shape != (num_tokens, num_heads):
            raise ValueError(
                f"{name} is {tuple(tensor.shape)}; it must be [num_tokens, num_heads], ({num_tokens}, {num_heads})"
            )
    if ssm_state.dim() != 4 or ssm_state.shape[1:] != (num_heads, value_size, key_size) or not ssm_state.shape[0]:
        raise ValueError(
            f"ssm_state is {tuple(ssm_state.shape)}; it must be [num_blocks, num_heads, value_size, key_size], (..., "
            f"{num_heads}, {value_size}, {key_size}): was the cache made for another layer?"
        )
    given = {"query": query, "key": key, "value": value, "log_decay": log_decay, "beta": beta, "ssm_state": ssm_state}
    for name, tensor in given.items():
        if tensor is None:
            continue
        if not tensor.is_floating_point():
            raise TypeError(f"{name} is {tensor.dtype}; it must be of floating point")
        if tensor.device != ssm_state.device:
            raise ValueError(
                f"{name} is on {tensor.device} and ssm_state on {ssm_state.device}; they must be on one device"
            )
    check_row_tensors("ssm_state", ssm_state, "query", query, rows)
