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

# Tokens of a piece: longer ones need more work inside, shorter ones more steps of the states. The delta rule has more
# to do inside, and inverses there, whose errors grow with the length.
PIECE = 64
DELTA_PIECE = 32
# Numbers in the largest intermediate tensor: on the CPU what a cache holds, elsewhere what keeps a device busy.
CPU_NUMBERS = 1 << 19
# The same for states of single tokens, which pass through it several times.
CPU_STATES = 1 << 18
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
        _single_tokens(query, key, value, log_decay, beta, ssm_state, rows, out)
        return out[:-1]
    pieces = _cut(rows, PIECE if beta is None else DELTA_PIECE)
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
    ends, keys = _by_step(inputs.spans[..., -1].unsqueeze(2), steps), _by_step(inputs.key, steps)
    kept = _by_step(inputs.decay[..., -1, None, None], steps)
    states = state.new_empty(steps + 1, *state.shape)
    states[0] = state
    found, corrections = _by_step(inputs.value, steps), None
    if inputs.beta is not None:
        found, corrections = (_by_step(tensor, steps) for tensor in _solve(inputs, inputs.beta))
    for number in range(steps):
        if corrections is not None:
            _add_product(found[number], states[number], corrections[number], -1.0)
        torch.mul(states[number], kept[number], out=states[number + 1])
        _add_product(states[number + 1], found[number] * ends[number], keys[number])
    result = _by_group(states[:-1].flatten(0, 1), inputs.query).mul_(inputs.decay.unsqueeze(2))
    _add_product(result, found.flatten(0, 1), _weigh(inputs.spans, inputs.key @ inputs.query))
    return result, states


def _solve(inputs: _Inputs, beta: Tensor) -> tuple[Tensor, Tensor]:
    """What each token adds were the states before the pieces zero, and what to take off for every ``h`` they are.

    Returns:
        ``[num_pieces, num_heads, value_size, length]`` and ``[num_pieces, num_heads, key_size, length]``.
    """
    system = _weigh(inputs.spans, inputs.key @ inputs.key.mT).mul_(beta.unsqueeze(2))
    solution = _invert(system).mul_(beta.unsqueeze(3))
    changes = inputs.value @ solution
    num_pieces, num_groups, length, _ = inputs.key.shape
    solution *= inputs.decay.unsqueeze(3)
    corrections = inputs.key.mT.unsqueeze(2) @ solution.view(num_pieces, num_groups, -1, length, length)
    return changes, corrections.flatten(1, 2)


def _invert(system: Tensor) -> Tensor:
    """The inverses of upper triangular matrices; only what is above the diagonal is read, which is taken to be 1.

    Blocks on the diagonal double from a single 1: where ``a`` and ``b`` are the inverses of two neighbours, what stands
    above both, ``c``, becomes ``-a @ c @ b``. Those are products of all blocks of all matrices at once, where a
    library's substitution takes one matrix after the other.

    Args:
        system: ``[..., length, length]``.
    """
    length = system.shape[-1]
    size = 1 << (length - 1).bit_length()
    if size != length:
        system = F.pad(system, (0, size - length, 0, size - length))
    inverse = torch.eye(size, dtype=system.dtype, device=system.device).expand_as(system).contiguous()
    half = 1
    while half < size:
        given, found = _diagonal_blocks(system, 2 * half), _diagonal_blocks(inverse, 2 * half)
        first, second = found[..., :half, :half], found[..., half:, half:]
        found[..., :half, half:] = (first @ given[..., :half, half:] @ second).neg_()
        half *= 2
    return inverse[..., :length, :length]


def _diagonal_blocks(matrices: Tensor, size: int) -> Tensor:
    """A view of the blocks on the diagonal of contiguous matrices, ``[..., num_blocks, size, size]``."""
    count = matrices.shape[-1] // size
    blocks = matrices.view(*matrices.shape[:-2], count, size, count, size)
    return blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)


def _single_tokens(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor | None,
    ssm_state: Tensor,
    rows: StateRows,
    out: Tensor,
) -> None:
    """One token a row, all rows in one step: on the CPU, of as many rows as its cache holds at a time.

    With ``h`` the decayed state and ``u (x) k`` what is added to it, ``(h + u (x) k) @ q = h @ q + u * (k . q)``: so
    that one product has both that and the ``h @ k`` on which the delta rule's ``u`` depends.
    """
    limit = CPU_STATES if ssm_state.is_cpu else DEVICE_NUMBERS
    count = max(1, limit // ssm_state[0].numel())
    heads = value.shape[1] // key.shape[1]
    decays, stores = log_decay.exp()[:, :, None, None], rows.chunk_state.long()
    asked = query.unsqueeze(3) if beta is None else torch.stack((query, key), 3)
    shared = (key * query).sum(2, keepdim=True).repeat_interleave(heads, 1)
    keys = key.repeat_interleave(heads, 1).unsqueeze(2)
    for first in range(0, rows.num_rows, count):
        here = slice(first, min(first + count, rows.num_rows))
        states = read_states(ssm_state, rows.initial_state[here]).to(value.dtype).mul_(decays[here])
        found, added = _by_group(states, asked[here]), value[here]
        if beta is not None:
            added = beta[here].unsqueeze(2) * (added - found[..., 1])
        states.addcmul_(added.unsqueeze(3), keys[here])
        store_states(ssm_state, stores[here], states)
        out[here] = found[..., 0] + added * shared[here]


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
    keys, values = key[tokens], value[tokens]
    if not live.is_cpu or not bool(live.all()):
        keys, values = (tensor.masked_fill_(behind.unsqueeze(3), 0) for tensor in (keys, values))
    return _Inputs(
        query=query[tokens].transpose(1, 2).contiguous().mT,
        key=keys.transpose(1, 2).contiguous(),
        value=values.permute(0, 2, 3, 1).contiguous(),
        spans=spans,
        decay=high.exp_(),
        beta=None if beta is None else beta[tokens].masked_fill_(behind, 0).mT,
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


def _add_product(sums: Tensor, values: Tensor, matrices: Tensor, factor: float = 1.0) -> None:
    """Add ``factor`` times the product as of `_by_group` to ``sums``, which is changed.

    Args:
        sums: ``[num_pieces, num_heads, num_rows, width]``, contiguous.
        values: ``[num_pieces, num_heads, num_rows, size]``.
        matrices: ``[num_pieces, num_groups, size, width]``.
        factor: on the product.
    """
    flat = matrices.flatten(0, 1)
    num_groups, size, width = flat.shape
    sums.view(num_groups, -1, width).baddbmm_(values.reshape(num_groups, -1, size), flat, alpha=factor)


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
