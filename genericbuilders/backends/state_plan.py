"""How a batch's rows are cut into chunks, and in which columns of a block table their states stand: host arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from genericbuilders.kernels.ints import Ints
from genericbuilders.specs import MambaSpec

__all__ = ["ChunkPlan", "chunk_step", "plan_chunks", "plan_uniform"]

UNCHUNKED = 1 << 30
"""A chunk that no row is longer than, in tokens."""


@dataclass(frozen=True, eq=False)
class ChunkPlan:
    """The rows of a batch in chunks. All arrays are on the host.

    Attributes:
        row_chunks: ``[num_reqs + 1]`` int32: the first chunk of each row.
        chunk_start_loc: ``[num_chunks + 1]`` int32: the first token of each chunk.
        chunk_row: ``[num_chunks]`` int32: each chunk's row.
        initial_column: ``[num_reqs]`` int32: the column of the state that a row starts from; -1 if it starts empty.
        chunk_column: ``[num_chunks]`` int32: the column in which the state behind a chunk is stored; -1 if it is not.
        max_chunks: the most chunks in a row.
        max_chunk_len: the most tokens in a chunk.
        uniform: whether every row has ``max_chunks`` chunks of one token, rows of padding too, as a CUDA graph of
            uniform decodes needs it.
    """

    row_chunks: Ints
    chunk_start_loc: Ints
    chunk_row: Ints
    initial_column: Ints
    chunk_column: Ints
    max_chunks: int
    max_chunk_len: int
    uniform: bool = False


def chunk_step(spec: MambaSpec, chunk_size: int | None) -> int:
    """The multiples, in tokens of a sequence, at which chunks end.

    In the mode ``"all"`` the state at every block's end is stored, so that chunks must end there, too: where
    ``chunk_size`` does not divide the block, the greatest common divisor is taken.
    """
    step = UNCHUNKED if chunk_size is None else chunk_size
    if spec.mamba_cache_mode != "all":
        return step
    return spec.block_size if chunk_size is None else math.gcd(step, spec.block_size)


def plan_chunks(
    spec: MambaSpec,
    query_start_loc: Ints,
    num_computed_tokens: Ints,
    step: int,
    num_accepted_tokens: Ints | None = None,
    speculative: npt.NDArray[np.bool_] | None = None,
) -> ChunkPlan:
    """Cut the rows at multiples of ``step`` in their sequences, and say where states are read and stored.

    The state before position ``p`` of a sequence stands in column 0 in the mode ``"none"``, and otherwise in the column
    of the block that holds position ``p - 1``. A speculative row is cut after every token, and the state behind its
    token ``i`` stands in column ``i``.

    Args:
        spec: mode and block size.
        query_start_loc: ``[num_reqs + 1]``.
        num_computed_tokens: ``[num_reqs]``; of rows without tokens it may be anything.
        step: tokens; see `chunk_step`.
        num_accepted_tokens: ``[num_reqs]``, at least 1; ``None`` if no speculative states are kept.
        speculative: ``[num_reqs]``; ``None`` if no row is.
    """
    starts = query_start_loc.astype(np.int64)
    lens = starts[1:] - starts[:-1]
    filled = lens > 0
    computed = np.where(filled, num_computed_tokens, 0).astype(np.int64)
    steps = np.full(len(lens), step, dtype=np.int64)
    if speculative is not None:
        steps[speculative] = 1
    first = computed // steps
    counts = np.where(filled, (computed + lens - 1) // steps - first + 1, 0)
    row_chunks = np.zeros(len(lens) + 1, dtype=np.int64)
    np.cumsum(counts, out=row_chunks[1:])
    row = np.repeat(np.arange(len(lens)), counts)
    ordinal = np.arange(len(row)) - row_chunks[row]
    # Positions in the sequence behind each chunk.
    end = np.minimum((first[row] + ordinal + 1) * steps[row], (computed + lens)[row])
    loc = np.zeros(len(row) + 1, dtype=np.int64)
    loc[1:] = starts[row] + end - computed[row]

    last = ordinal == counts[row] - 1
    if spec.mamba_cache_mode == "none":
        initial = np.zeros(len(lens), dtype=np.int64) if num_accepted_tokens is None else num_accepted_tokens - 1
        column = np.where(last, 0, -1)
        if speculative is not None:
            column = np.where(speculative[row], ordinal, column)
    else:
        initial = (computed - 1) // spec.block_size
        stored = last | (end % spec.block_size == 0) if spec.mamba_cache_mode == "all" else last
        column = np.where(stored, (end - 1) // spec.block_size, -1)
    return ChunkPlan(
        row_chunks.astype(np.int32),
        loc.astype(np.int32),
        row.astype(np.int32),
        np.where(filled & (computed > 0), initial, -1).astype(np.int32),
        column.astype(np.int32),
        int(counts.max(initial=0)),
        int(np.diff(loc).max(initial=0)),
    )


def plan_uniform(
    spec: MambaSpec,
    num_computed_tokens: Ints,
    num_rows: int,
    query_len: int,
    num_accepted_tokens: Ints | None = None,
) -> ChunkPlan:
    """`plan_chunks` of rows that continue states by ``query_len`` tokens each, and of padding as long as they are.

    Rows of padding start from zeros, and no state of theirs is stored.

    Args:
        spec: mode and block size.
        num_computed_tokens: ``[num_reqs]``, of the rows without padding; none is 0.
        num_rows: rows, padding included.
        query_len: tokens; more than 1 only for speculative rows.
        num_accepted_tokens: ``[num_reqs]``, at least 1; ``None`` if no speculative states are kept.
    """
    count, tokens = len(num_computed_tokens), num_rows * query_len
    initial = np.full(num_rows, -1, dtype=np.int32)
    column = np.full((num_rows, query_len), -1, dtype=np.int32)
    if spec.mamba_cache_mode == "none":
        initial[:count] = 0 if num_accepted_tokens is None else num_accepted_tokens - 1
        column[:count] = np.arange(query_len)
    else:
        initial[:count] = (num_computed_tokens - 1) // spec.block_size
        column[:count] = num_computed_tokens[:, None] // spec.block_size
    every = np.arange(tokens + 1, dtype=np.int32)
    row = every[:tokens] // query_len
    return ChunkPlan(every[::query_len], every, row, initial, column.reshape(-1), query_len, 1, uniform=True)
