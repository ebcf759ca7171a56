"""The oracles: each recurrence token by token, as it is written down, in plain torch and the dtype of its inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.state.rows import StateRows

__all__ = ["causal_conv", "decay_scan", "delta_scan", "selective_scan"]

# From a state and a token's index to the next state and the token's output.
TokenStep = Callable[[Tensor, int], tuple[Tensor, Tensor]]


def causal_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, conv_state: Tensor, rows: StateRows, *, silu: bool = True
) -> Tensor:
    """See `genericbuilders.kernels.state.protocols.CausalConv`."""

    def step(window: Tensor, token: int) -> tuple[Tensor, Tensor]:
        window = torch.cat((window, x[token : token + 1].to(window.dtype)))
        out = (window.to(weight.dtype) * weight.T).sum(0)
        out = out if bias is None else out + bias
        return window[1:], F.silu(out) if silu else out

    return _run(step, x, conv_state, rows)


def selective_scan(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    ssm_state: Tensor,
    rows: StateRows,
) -> Tensor:
    """See `genericbuilders.kernels.state.protocols.SelectiveScan`."""

    def step(state: Tensor, token: int) -> tuple[Tensor, Tensor]:
        width = dt[token][:, None]
        state = torch.exp(width * a) * state + width * b[token] * x[token][:, None]
        out = state @ c[token].to(state.dtype)
        return state, out if d is None else out + d * x[token]

    return _run(step, x, ssm_state, rows)


def decay_scan(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, ssm_state: Tensor, rows: StateRows
) -> Tensor:
    """See `genericbuilders.kernels.state.protocols.DecayScan`."""
    heads = value.shape[1] // key.shape[1]

    def step(state: Tensor, token: int) -> tuple[Tensor, Tensor]:
        keys, queries = (each[token].repeat_interleave(heads, 0) for each in (key, query))
        state = torch.exp(log_decay[token])[:, None, None] * state + value[token][:, :, None] * keys[:, None]
        return state, (state @ queries[:, :, None].to(state.dtype))[:, :, 0]

    return _run(step, value, ssm_state, rows)


def delta_scan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    ssm_state: Tensor,
    rows: StateRows,
) -> Tensor:
    """See `genericbuilders.kernels.state.protocols.DeltaScan`."""
    heads = value.shape[1] // key.shape[1]

    def step(state: Tensor, token: int) -> tuple[Tensor, Tensor]:
        keys, queries = (each[token].repeat_interleave(heads, 0).to(state.dtype) for each in (key, query))
        state = torch.exp(log_decay[token])[:, None, None] * state
        missing = beta[token][:, None] * (value[token] - (state @ keys[:, :, None])[:, :, 0])
        state = state + missing[:, :, None] * keys[:, None]
        return state, (state @ queries[:, :, None])[:, :, 0]

    return _run(step, value, ssm_state, rows)


def _run(step: TokenStep, like: Tensor, states: Tensor, rows: StateRows) -> Tensor:
    """Every row from its initial state through its tokens; ``like`` gives the outputs' shape and dtype."""
    first = _ints(rows.initial_state)
    starts = [states[block].clone() if block else torch.zeros_like(states[0]) for block in first]
    stores, chunk_starts, row_chunks = _ints(rows.chunk_state), _ints(rows.chunk_start_loc), _ints(rows.row_chunks)
    out = torch.zeros_like(like)
    for row, state in enumerate(starts):
        for chunk in range(row_chunks[row], row_chunks[row + 1]):
            for token in range(chunk_starts[chunk], chunk_starts[chunk + 1]):
                state, out[token] = step(state, token)
            if stores[chunk]:
                states[stores[chunk]] = state
    return out


def _ints(tensor: Tensor) -> list[int]:
    return [int(value) for value in tensor.cpu().numpy()]
