"""The decaying scan and the gated delta rule chunk by chunk: matrix products on any device, no loop over tokens.

Chunks are cut into pieces of a bounded length, those of all rows side by side. What the tokens of a piece give each
other, and the state after it, are matrix products (Dao and Gu 2024, section 6; Yang et al. 2024 for the delta rule);
only the states pass from piece to piece, in a loop over a row's pieces that takes all rows at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.state.portable_conv import read_states, store_states
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.state.validation import check_indices
from genericbuilders.kernels.state.validation_scan import check_scan

__all__ = ["decay_scan", "delta_scan"]

# Tokens of a piece: longer ones need more work inside, shorter ones more steps of the states.
PIECE = 64
# Numbers in the largest intermediate tensor: on the CPU what a cache holds, elsewhere what keeps a device busy.
CPU_NUMBERS = 1 << 19
DEVICE_NUMBERS = 1 << 26


def decay_scan(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, ssm_state: Tensor, rows: StateRows
) -> Tensor:
    """Run the decaying scan; see `genericbuilders.kernels.state.protocols.DecayScan`.

    Sums are in float32, or wider where an input is. The tensors may have more tokens than the rows; their output is
    zero. Nothing is read back from the device, and so indices are checked on the CPU only.

    Raises:
        ValueError: axes or devices that do not fit, a block that there is not, or rows and chunks that do not follow
            each other; nothing is written.
        TypeError: a tensor is not of floating point, or an index not int32.
    """
    check_scan(query, key, value, log_decay, None, ssm_state, rows)
    return _scan(query, key, value, log_decay, None, ssm_state, rows)


def delta_scan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    ssm_state: Tensor,
    rows: StateRows,
) -> Tensor:
    """Run the gated delta rule; see `genericbuilders.kernels.state.protocols.DeltaScan`.

    Sums, paddings and checks are as in `decay_scan`.

    Raises:
        ValueError: axes or devices that do not fit, a block that there is not, or rows and chunks that do not follow
            each other; nothing is written.
        TypeError: a tensor is not of floating point, or an index not int32.
    """
    check_scan(query, key, value, log_decay, beta, ssm_state, rows)
    return _scan(query, key, value, log_decay, beta, ssm_state, rows)


@dataclass(frozen=True)
class _Pieces:
    """Chunks cut into pieces; the last one is empty, and so are those that no row has.

    Attributes:
        steps: the most pieces in a row, or more.
        tokens: ``[num_pieces, length]`` int64: a piece's tokens; behind its end any that exist.
        live: ``[num_pieces, length]`` bool: which of them are its own.
        first: ``[num_rows]`` int64: a row's first piece.
        count: ``[num_rows]`` int64: a row's pieces.
        stores: ``[num_pieces]`` int64: the block in which the state after a piece is stored, or null.
    """

    steps: int
    tokens: Tensor
    live: Tensor
    first: Tensor
    count: Tensor
    stores: Tensor


@dataclass(frozen=True)
class _Inputs:
    """Some pieces' inputs, heads before tokens; behind a piece's end keys and values are 0, and nothing decays.

    Attributes:
        query: ``[num_pieces, num_groups, key_size, length]``.
        key: ``[num_pieces, num_groups, length, key_size]``.
        value: ``[num_pieces, num_heads, value_size, length]``.
        spans: ``[num_pieces, num_heads, length, length]``: the decay after token ``s`` up to ``t``, 0 for ``s > t``.
        decay: ``[num_pieces, num_heads, length]``: the decay from the piece's start up to a token.
        beta: ``[num_pieces, num_heads, length]``, or ``None`` without the delta rule.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    spans: Tensor
    decay: Tensor
    beta: Tensor | None


def _scan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor | None,
    ssm_state: Tensor,
    rows: StateRows,
) -> Tensor:
    if ssm_state.is_cpu:
        check_indices(rows, len(ssm_state))
    if not (rows.num_tokens and rows.num_rows and len(rows.chunk_state) and value.numel()):
        return torch.zeros_like(value, memory_format=torch.contiguous_format)
    # Tokens behind a piece's end all give their output to one place more, which is dropped.
    out = torch.zeros(len(value) + 1, *value.shape[1:], dtype=value.dtype, device=value.device)
    wide = torch.promote_types(torch.promote_types(ssm_state.dtype, value.dtype), torch.float32)
    query, key, value, log_decay = (tensor[: rows.num_tokens].to(wide) for tensor in (query, key, value, log_decay))
    beta = None if beta is None else beta[: rows.num_tokens].to(wide)
    if rows.single_tokens:
        out[: rows.num_tokens] = _single_tokens(query, key, value, log_decay, beta, ssm_state, rows)
        return out[:-1]
    pieces = _cut(rows, PIECE)
    state = read_states(ssm_state, rows.initial_state).to(wide)
    first, count = pieces.first, pieces.count
    limit = CPU_NUMBERS if state.is_cpu else DEVICE_NUMBERS
    size = value.shape[1] * max(pieces.tokens.shape[1] ** 2, value.shape[2] * key.shape[2])
    step = 0
    while step < pieces.steps:
        if state.is_cpu:
            left = count > step
            if not bool(left.all()):
                first, count, state = first[left], count[left], state[left]
        steps = max(1, min(pieces.steps - step, limit // (len(state) * size)))
        numbers = torch.arange(step, step + steps, device=state.device)[:, None]
        # A row at its end goes through the last piece, which is empty.
        places = torch.where(numbers < count, first + numbers, len(pieces.tokens) - 1)
        tokens, live = pieces.tokens[places.flatten()], pieces.live[places.flatten()]
        inputs = _gather(query, key, value, log_decay, beta, tokens, live)
        result, states = _run_pieces(inputs, state, steps)
        for number in range(steps):
            store_states(ssm_state, pieces.stores[places[number]], states[number + 1])
        state = states[steps]
        live_or_dropped = torch.where(live, tokens, len(out) - 1).flatten()
        out.index_copy_(0, live_or_dropped, result.permute(0, 3, 1, 2).flatten(0, 1).to(out.dtype))
        step += steps
    return out[:-1]


def _run_pieces(inputs: _Inputs, state: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Take rows through some pieces each.

    With ``h`` the state before a piece, a token adds ``u[t] (x) k[t]`` to it: without the delta rule ``u`` is ``v``,
    with it ``u[t] + beta[t] * sum over s < t of decay(s, t) * (k[s] . k[t]) * u[s] = beta[t] * (v[t] - decay(t) * h @
    k[t])``, which is solved for the values and for the keys before the ``h`` are known (the UT transform).

    Args:
        inputs: ``steps`` times the rows' pieces.
        state: ``[num_rows, num_heads, value_size, key_size]``.
        steps: pieces of each row.

    Returns:
        The outputs ``[num_pieces, num_heads, value_size, length]``, and the states before the pieces and after them
        ``[steps + 1, num_rows, num_heads, value_size, key_size]``.
    """
    to_end = inputs.spans[..., -1].unsqueeze(2)
    kept = _by_step(inputs.decay[..., -1, None, None], steps)
    states = state.new_empty(steps + 1, *state.shape)
    states[0] = state
    if inputs.beta is None:
        found = inputs.value
        added = _by_step(_by_group(found * to_end, inputs.key), steps)
        for number in range(steps):
            torch.addcmul(added[number], states[number], kept[number], out=states[number + 1])
    else:
        changes, corrections = (_by_step(tensor, steps) for tensor in _solve(inputs, inputs.beta))
        ends, keys = _by_step(to_end, steps), _by_step(inputs.key, steps)
        found = torch.empty_like(changes)
        for number in range(steps):
            torch.sub(changes[number], states[number] @ corrections[number], out=found[number])
            added = _by_group(found[number] * ends[number], keys[number])
            torch.addcmul(added, states[number], kept[number], out=states[number + 1])
        found = found.flatten(0, 1)
    result = _by_group(states[:-1].flatten(0, 1), inputs.query).mul_(inputs.decay.unsqueeze(2))
    result += found @ _weigh(inputs.spans, inputs.key @ inputs.query)
    return result, states


def _solve(inputs: _Inputs, beta: Tensor) -> tuple[Tensor, Tensor]:
    """What each token adds were the states before the pieces zero, and what to take off for every ``h`` they are.

    Returns:
        ``[num_pieces, num_heads, value_size, length]`` and ``[num_pieces, num_heads, key_size, length]``.
    """
    betas = beta.unsqueeze(2)
    system = _weigh(inputs.spans, inputs.key @ inputs.key.mT).mul_(betas)
    heads = beta.shape[1] // inputs.key.shape[1]
    keys = inputs.key.mT.repeat_interleave(heads, 1) * inputs.decay.unsqueeze(2)
    sides = torch.cat((inputs.value, keys), 2).mul_(betas)
    # Only what is above the diagonal is read, and the diagonal taken to be 1.
    # torch.linalg's name for it has no type.
    solved: Tensor = torch.ops.aten.linalg_solve_triangular(system, sides, upper=True, left=False, unitriangular=True)
    return solved[:, :, : inputs.value.shape[2]], solved[:, :, inputs.value.shape[2] :]


def _single_tokens(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor | None,
    ssm_state: Tensor,
    rows: StateRows,
) -> Tensor:
    """One token a row: ``[num_rows, num_heads, value_size]``."""
    heads = value.shape[1] // key.shape[1]
    query, key = (tensor.repeat_interleave(heads, 1) for tensor in (query, key))
    states = read_states(ssm_state, rows.initial_state).to(value.dtype)
    states *= log_decay.exp()[:, :, None, None]
    if beta is not None:
        value = beta.unsqueeze(2) * (value - (states @ key.unsqueeze(3)).squeeze(3))
    states.addcmul_(value.unsqueeze(3), key.unsqueeze(2))
    store_states(ssm_state, rows.chunk_state[: rows.num_rows].long(), states)
    return (states @ query.unsqueeze(3)).squeeze(3)


def _cut(rows: StateRows, limit: int) -> _Pieces:
    """Cut chunks into pieces of at most ``limit`` tokens.

    How many there are is read from the index tensors on the CPU; elsewhere what the host knows bounds it.
    """
    length = max(1, min(limit, rows.max_chunk_len))
    starts, row_chunks = rows.chunk_start_loc.long(), rows.row_chunks.long()
    num_chunks = len(rows.chunk_state)
    # Every chunk has a piece, if it is an empty one.
    ends = ((starts.diff() + length - 1) // length).clamp_(min=1).cumsum(0)
    firsts = F.pad(ends, (1, 0))
    first = firsts[row_chunks[:-1]]
    count = firsts[row_chunks[1:]] - first
    if starts.is_cpu:
        steps, num_pieces = int(count.max()), int(ends[-1])
    else:
        per_chunk = -(-rows.max_chunk_len // length)
        steps = min(rows.max_chunks * per_chunk, rows.max_chunks + rows.num_tokens // length)
        num_pieces = num_chunks + rows.num_tokens // length
    places = torch.arange(num_pieces + 1, device=starts.device)
    chunks = torch.searchsorted(ends, places, right=True).clamp_(max=num_chunks - 1)
    begins = starts[chunks] + (places - firsts[chunks]) * length
    tokens = begins[:, None] + torch.arange(length, device=starts.device)
    return _Pieces(
        steps=steps,
        tokens=tokens.clamp(max=rows.num_tokens - 1),
        live=tokens < starts[chunks + 1, None],
        first=first,
        count=count,
        stores=torch.where(places == ends[chunks] - 1, rows.chunk_state.long()[chunks], 0),
    )


def _gather(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor | None,
    tokens: Tensor,
    live: Tensor,
) -> _Inputs:
    """The inputs of pieces: ``tokens`` and ``live`` are ``[num_pieces, length]``."""
    behind = ~live.unsqueeze(2)
    # A decay of e**-1000 is 0 in every dtype; minus infinity would leave differences that are not a number.
    logs = log_decay[tokens].clamp_(min=-1000.0).masked_fill_(behind, 0).mT.double().cumsum(2)
    high = logs.to(log_decay.dtype)
    # The rest that rounding leaves makes differences of large sums exact, at less cost than a sum for each span.
    low = (logs - high).to(log_decay.dtype)
    spans = high.unsqueeze(2) - high.unsqueeze(3)
    spans += low.unsqueeze(2)
    spans -= low.unsqueeze(3)
    length = tokens.shape[1]
    backwards = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril_(-1)
    spans.masked_fill_(backwards, -torch.inf).exp_()
    behind = behind.unsqueeze(3)
    return _Inputs(
        query=query[tokens].transpose(1, 2).contiguous().mT,
        key=key[tokens].masked_fill_(behind, 0).transpose(1, 2).contiguous(),
        value=value[tokens].masked_fill_(behind, 0).permute(0, 2, 3, 1).contiguous(),
        spans=spans,
        decay=high.exp_(),
        beta=None if beta is None else beta[tokens].masked_fill_(~live.unsqueeze(2), 0).mT,
    )


def _by_group(values: Tensor, matrices: Tensor) -> Tensor:
    """Multiply each head's matrix by its group's: heads of one group are one matrix with more rows.

    Args:
        values: ``[num_pieces, num_heads, num_rows, size]``.
        matrices: ``[num_pieces, num_groups, size, width]``.

    Returns:
        ``[num_pieces, num_heads, num_rows, width]``.
    """
    num_pieces, num_heads, num_rows, size = values.shape
    num_groups = matrices.shape[1]
    return (values.reshape(num_pieces, num_groups, -1, size) @ matrices).view(num_pieces, num_heads, num_rows, -1)


def _weigh(spans: Tensor, products: Tensor) -> Tensor:
    """Multiply spans by their groups' products.

    Args:
        spans: ``[num_pieces, num_heads, length, length]``.
        products: ``[num_pieces, num_groups, length, length]``.
    """
    num_pieces, num_heads, length, _ = spans.shape
    by_group = spans.view(num_pieces, products.shape[1], -1, length, length)
    return (by_group * products.unsqueeze(2)).view(num_pieces, num_heads, length, length)


def _by_step(pieces: Tensor, steps: int) -> Tensor:
    """``[steps * num_rows, ...]`` as ``[steps, num_rows, ...]``."""
    return pieces.reshape(steps, -1, *pieces.shape[1:])
