"""Mamba's selective scan in batched torch operations on any device: a loop over time, not over rows or channels."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genericbuilders.kernels.state.portable_conv import last_stores, read_states, store_states
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.state.validation import check_indices, check_selective

__all__ = ["selective_scan"]

# Elements of the states that are held at once: few enough for a CPU's cache, enough to keep an accelerator busy.
CPU_ELEMENTS = 2**18
ACCELERATOR_ELEMENTS = 2**24


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
    """Run Mamba's recurrence over each row; see `genericbuilders.kernels.state.protocols.SelectiveScan`.

    The recurrence is in float32, or wider where an input is. ``x`` may have more tokens than the rows; their output
    is zero. Single tokens are run without reading anything back from the device, and so their indices are checked on
    the CPU only; for longer rows the indices are read back once.

    Raises:
        ValueError: axes, strides or devices that do not fit, a block that there is not, or rows and chunks that do
            not follow each other; nothing is written.
        TypeError: a tensor is not of floating point, or an index not int32.
    """
    check_selective(x, dt, a, b, c, d, ssm_state, rows)
    single = rows.single_tokens
    on_host = rows if single or x.is_cpu else _to_host(rows)
    if x.is_cpu or not single:
        check_indices(on_host, len(ssm_state))
    out = torch.zeros_like(x)
    if not rows.num_rows:
        return out
    dtype = torch.float32
    for tensor in (x, dt, a, b, c, ssm_state):
        dtype = torch.promote_types(dtype, tensor.dtype)
    inputs = _Inputs(x, dt, a.to(dtype), b, c, None if d is None else d.to(dtype))
    if single:
        _scan_tokens(inputs, ssm_state, rows, out)
    else:
        _scan_rows(replace(inputs, a=inputs.a.T.contiguous()), ssm_state, on_host, out)
    return out


@dataclass(frozen=True)
class _Inputs:
    """The scan's inputs, ``a`` and ``d`` in the dtype of the recurrence."""

    x: Tensor
    dt: Tensor
    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor | None


def _at_once(ssm_state: Tensor) -> int:
    """How many states are held at once."""
    return max(1, (CPU_ELEMENTS if ssm_state.is_cpu else ACCELERATOR_ELEMENTS) // ssm_state[0].numel())


def _scan_tokens(inputs: _Inputs, ssm_state: Tensor, rows: StateRows, out: Tensor) -> None:
    """One token for each row."""
    dtype, count = inputs.a.dtype, _at_once(ssm_state)
    for first in range(0, rows.num_rows, count):
        here = slice(first, min(first + count, rows.num_rows))
        x, dt, b, c = (each[here].to(dtype) for each in (inputs.x, inputs.dt, inputs.b, inputs.c))
        states = read_states(ssm_state, rows.initial_state[here]).to(dtype)
        states.mul_((dt[:, :, None] * inputs.a).exp_()).addcmul_((dt * x)[:, :, None], b[:, None])
        store_states(ssm_state, rows.chunk_state[here].long(), states)
        result = (states * c[:, None]).sum(2)
        out[here] = (result if inputs.d is None else result.addcmul_(inputs.d, x)).to(out.dtype)


@dataclass(frozen=True)
class _Places:
    """The tokens of all rows in the order of time, at each step the longest rows first; on the CPU, int64.

    Attributes:
        order: rows, longest first ``[num_rows]``.
        starts: the first place of each step, and the end ``[num_steps + 1]``.
        tokens: the token at each place.
    """

    order: Tensor
    starts: Tensor
    tokens: Tensor


@dataclass(frozen=True)
class _Stores:
    """States to store; on the CPU, int64.

    Attributes:
        places: the place of the token behind which each is. For a row's initial state, which a chunk without tokens
            stores, the row's index in `_Places.order`, less the number of rows.
        blocks: where each goes.
    """

    places: Tensor
    blocks: Tensor

    def among(self, first: int, last: int) -> _Stores:
        """Those at places ``first`` to ``last``."""
        found = (self.places >= first) & (self.places < last)
        return _Stores(self.places[found] - first, self.blocks[found])


def _scan_rows(inputs: _Inputs, ssm_state: Tensor, rows: StateRows, out: Tensor) -> None:
    """Rows of any length; ``rows`` are on the CPU.

    Channels come last here, also in ``inputs.a``: that is how states are added and read fastest.
    """
    device = ssm_state.device
    places = _order_tokens(rows)
    stores = _find_stores(rows, places, len(ssm_state))
    states = read_states(ssm_state, rows.initial_state[places.order].to(device)).to(inputs.a.dtype)
    early = stores.among(-len(places.order), 0)
    if len(early.blocks):
        store_states(ssm_state, early.blocks.to(device), states[early.places.to(device)])
    states = states.transpose(1, 2)
    starts = [int(start) for start in places.starts.numpy()]
    limit = _at_once(ssm_state)
    first = 0
    while first + 1 < len(starts):
        origin = starts[first]
        last = max(first + 1, bisect_right(starts, origin + limit) - 1)
        tokens = places.tokens[origin : starts[last]].to(device)
        decay, drive = _drive(inputs, tokens)
        for step in range(first, last):
            here = slice(starts[step] - origin, starts[step + 1] - origin)
            # What drives the state becomes the state.
            states = drive[here].addcmul_(decay[here], states[: here.stop - here.start])
        out.index_copy_(0, tokens, _read(inputs, drive, tokens).to(out.dtype))
        found = stores.among(origin, starts[last])
        if len(found.blocks):
            store_states(ssm_state, found.blocks.to(device), drive[found.places.to(device)].transpose(1, 2))
        first = last


def _drive(inputs: _Inputs, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Of some tokens: the state's factor and what is added to it, ``[tokens, state_size, dim]``."""
    dt = inputs.dt[tokens].to(inputs.a.dtype)
    drive = (dt * inputs.x[tokens])[:, None] * inputs.b[tokens].to(dt.dtype)[:, :, None]
    return (dt[:, None] * inputs.a).exp_(), drive


def _read(inputs: _Inputs, states: Tensor, tokens: Tensor) -> Tensor:
    """The output of some tokens, ``[tokens, dim]``, from the states behind them."""
    out = (inputs.c[tokens].to(states.dtype)[:, None] @ states)[:, 0]
    return out if inputs.d is None else out.addcmul_(inputs.d, inputs.x[tokens].to(out.dtype))


def _order_tokens(rows: StateRows) -> _Places:
    first = rows.query_start_loc.long()
    lengths = first.diff()
    order = lengths.argsort(descending=True, stable=True)
    steps = torch.arange(int(lengths.max()))
    alive = len(lengths) - torch.searchsorted(lengths.sort().values, steps, right=True)
    starts = torch.cat((alive.new_zeros(1), alive.cumsum(0)))
    step = steps.repeat_interleave(alive)
    rank = torch.arange(len(step)) - starts[step]
    return _Places(order, starts, first[order[rank]] + step)


def _find_stores(rows: StateRows, places: _Places, num_blocks: int) -> _Stores:
    blocks = last_stores(rows, num_blocks)
    chunks = blocks.nonzero()[:, 0]
    row = torch.searchsorted(rows.row_chunks.long(), chunks, right=True) - 1
    length = rows.chunk_start_loc.long()[chunks + 1] - rows.query_start_loc.long()[row]
    rank = places.order.argsort()[row]
    behind = places.starts[(length - 1).clamp(min=0)] + rank
    return _Stores(behind.where(length > 0, rank - rows.num_rows), blocks[chunks])


def _to_host(rows: StateRows) -> StateRows:
    return StateRows(
        num_tokens=rows.num_tokens,
        max_chunks=rows.max_chunks,
        max_chunk_len=rows.max_chunk_len,
        query_start_loc=rows.query_start_loc.cpu(),
        initial_state=rows.initial_state.cpu(),
        row_chunks=rows.row_chunks.cpu(),
        chunk_start_loc=rows.chunk_start_loc.cpu(),
        chunk_state=rows.chunk_state.cpu(),
    )
