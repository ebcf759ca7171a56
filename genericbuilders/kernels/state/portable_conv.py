"""Causal convolution in batched torch operations on any device; no loop runs over tokens or rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.state.validation import check_conv, check_indices

__all__ = ["causal_conv", "last_stores", "read_states", "store_states"]


def causal_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, conv_state: Tensor, rows: StateRows, *, silu: bool = True
) -> Tensor:
    """Convolve each row; see `genericbuilders.kernels.state.protocols.CausalConv`.

    Sums are in float32, or wider where an input is. Inputs are rounded to the state's dtype first, so that a row's
    result does not depend on how its tokens are split over calls. ``x`` may have more tokens than the rows; their
    output is zero. Nothing is read back from the device, and so indices are checked on the CPU only.

    Raises:
        ValueError: axes, strides or devices that do not fit, a block that there is not, or rows and chunks that do
            not follow each other; nothing is written.
        TypeError: a tensor is not of floating point, or an index not int32.
    """
    check_conv(x, weight, bias, conv_state, rows)
    if x.is_cpu:
        check_indices(rows, len(conv_state))
    dtype = torch.promote_types(torch.promote_types(conv_state.dtype, weight.dtype), torch.float32)
    taps = weight.T.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if not rows.num_rows:
        return torch.zeros_like(x)
    convolve = _convolve_tokens if rows.single_tokens else _convolve_rows
    result = convolve(x[: rows.num_tokens].to(conv_state.dtype), taps, bias, conv_state, rows)
    result = (F.silu(result, inplace=True) if silu else result).to(x.dtype)
    return result if len(result) == len(x) else F.pad(result, (0, 0, 0, len(x) - len(result)))


def read_states(states: Tensor, blocks: Tensor) -> Tensor:
    """A copy of the states in ``blocks`` ``[num_rows]``, zeros for the null block.

    Args:
        states: ``[num_blocks, ...]``.
        blocks: ``[num_rows]`` int32 or int64.
    """
    found, null = states.index_select(0, blocks), blocks == 0
    if not states.is_cpu:
        return found.masked_fill_(null.view(-1, *[1] * (states.dim() - 1)), 0)
    return found.index_fill_(0, null.nonzero()[:, 0], 0) if bool(null.any()) else found


def store_states(states: Tensor, blocks: Tensor, values: Tensor) -> None:
    """Store ``values[i]`` in block ``blocks[i]``, unless that is the null block.

    Where a block comes twice, it must come with the same values. On other devices than the CPU nothing is read back:
    the null block is written there too, with what it holds.

    Args:
        states: ``[num_blocks, ...]``, changed.
        blocks: ``[num_values]`` int64.
        values: ``[num_values, ...]``, of any floating-point dtype.
    """
    values = values.to(states.dtype)
    live = blocks != 0
    if not states.is_cpu:
        values = torch.where(live.view(-1, *[1] * (states.dim() - 1)), values, states[:1])
    elif not bool(live.all()):
        blocks, values = blocks[live], values[live]
    states.index_copy_(0, blocks, values)


def last_stores(rows: StateRows, num_blocks: int) -> Tensor:
    """The block of each chunk ``[num_chunks]`` int64, null where no row has the chunk or a later one stores there too.

    Args:
        rows: which tokens run through which state.
        num_blocks: blocks of the states.
    """
    blocks = rows.chunk_state.long()
    chunks = torch.arange(len(blocks), device=blocks.device)
    blocks = blocks.where((chunks >= rows.row_chunks[0]) & (chunks < rows.row_chunks[-1]), 0)
    if rows.max_chunks == 1:
        return blocks
    # A row's chunks are in the order of time, and two rows do not store in one block.
    last = chunks.new_zeros(num_blocks).scatter_reduce_(0, blocks, chunks, "amax")
    return blocks.where(last[blocks] == chunks, 0)


def _convolve_tokens(x: Tensor, taps: Tensor, bias: Tensor | None, conv_state: Tensor, rows: StateRows) -> Tensor:
    """One token for each row: ``[num_rows, conv_dim]``; ``taps`` is ``[width, conv_dim]``."""
    before = read_states(conv_state, rows.initial_state)
    result = x * taps[-1] if bias is None else torch.addcmul(bias, x.to(taps.dtype), taps[-1])
    for place in range(len(taps) - 1):
        result.addcmul_(before[:, place].to(taps.dtype), taps[place])
    if len(taps) > 1:
        window = torch.cat((before[:, 1:], x[:, None]), 1)
        store_states(conv_state, rows.chunk_state[: rows.num_rows].long(), window)
    return result


def _convolve_rows(x: Tensor, taps: Tensor, bias: Tensor | None, conv_state: Tensor, rows: StateRows) -> Tensor:
    """Rows of any length: ``[num_tokens, conv_dim]``; ``taps`` is ``[width, conv_dim]``.

    All rows lie one behind the other, each behind the inputs from its state: then every window is a slice.
    """
    num_tokens, kept = len(x), len(taps) - 1
    starts = rows.query_start_loc.long()
    tokens = torch.arange(num_tokens, device=x.device)
    # Tokens before the first row and behind the last one have places too, so that no shape depends on the rows.
    row = (torch.searchsorted(starts, tokens, right=True) - 1).clamp(max=rows.num_rows - 1)
    place = tokens + (row + 1) * kept
    line = x.new_zeros(num_tokens + rows.num_rows * kept, x.shape[1])
    line.index_copy_(0, place, x)
    steps = torch.arange(kept, device=x.device)
    if kept:
        before = starts[:-1] + torch.arange(rows.num_rows, device=x.device) * kept
        line.index_copy_(0, _spread(before, steps), read_states(conv_state, rows.initial_state).flatten(0, 1))
    whole = line.to(taps.dtype)
    size = len(line) - kept
    sums = whole[:size] * taps[0] if bias is None else torch.addcmul(bias, whole[:size], taps[0])
    for tap in range(1, kept + 1):
        sums.addcmul_(whole[tap : tap + size], taps[tap])
    covered = (tokens >= starts[0]) & (tokens < starts[-1])
    result = sums.index_select(0, place - kept).masked_fill_(~covered[:, None], 0)
    if kept and len(rows.chunk_state):
        chunks = torch.arange(len(rows.chunk_state), device=x.device)
        row = (torch.searchsorted(rows.row_chunks.long(), chunks, right=True) - 1).clamp(0, rows.num_rows - 1)
        ends = (rows.chunk_start_loc[1:].long() + row * kept).clamp(0, size)
        windows = line.index_select(0, _spread(ends, steps)).view(len(chunks), kept, -1)
        store_states(conv_state, last_stores(rows, len(conv_state)), windows)
    return result


def _spread(places: Tensor, steps: Tensor) -> Tensor:
    """``places[i] + steps[j]``, flat."""
    return (places[:, None] + steps).flatten()
