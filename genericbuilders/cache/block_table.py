"""Each running request's blocks in one array, and the slots that a batch's tokens are stored in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from genericbuilders.cache.block_pool import NULL_BLOCK
from genericbuilders.specs.arithmetic import require_at_least

__all__ = ["PADDING_SLOT", "BlockTable", "slots_of"]

PADDING_SLOT = -1
"""The slot of a token that is not stored."""

Indices = npt.NDArray[np.integer] | Sequence[int]


def slots_of(
    block_table: npt.NDArray[np.int32],
    rows: Indices,
    positions: Indices,
    block_size: int,
    out: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.int64]:
    """The slot of each token: ``block * block_size + offset``, for a whole batch at once.

    Args:
        block_table: ``[num_rows, max_blocks]`` int32.
        rows: ``[num_tokens]``, each token's row in ``block_table``.
        positions: ``[num_tokens]``, each token's position in its sequence.
        block_size: tokens in one block.
        out: ``[num_padded_tokens]`` int64, a persistent buffer that is filled to its end; ``None`` for a new array.

    Returns:
        ``[num_padded_tokens]`` int64; `PADDING_SLOT` behind the batch's tokens, and for a token whose block is
        the null block.

    Raises:
        ValueError: ``rows`` and ``positions`` differ in length, or ``out`` is too short.
        IndexError: a row or a position is outside of the table.
    """
    at_rows, at = np.asarray(rows, dtype=np.int64), np.asarray(positions, dtype=np.int64)
    if at_rows.shape != at.shape or at.ndim != 1:
        raise ValueError(f"rows have shape {at_rows.shape} and positions {at.shape}; both must be [num_tokens]")
    num_tokens = len(at)
    if out is None:
        out = np.empty(num_tokens, dtype=np.int64)
    elif len(out) < num_tokens:
        raise ValueError(f"out holds {len(out)} slots; the batch has {num_tokens} tokens")
    if num_tokens and (at.min() < 0 or at_rows.min() < 0):
        raise IndexError(f"a row ({at_rows.min()}) or position ({at.min()}) is negative")
    columns, offsets = np.divmod(at, block_size)
    blocks = block_table[at_rows, columns].astype(np.int64)
    np.copyto(out[:num_tokens], np.where(blocks == NULL_BLOCK, PADDING_SLOT, blocks * block_size + offsets))
    out[num_tokens:] = PADDING_SLOT
    return out


class BlockTable:
    """The blocks of up to ``max_num_reqs`` requests, one row each, in an array that is allocated once.

    Rows grow at their end, so a step writes new blocks only. Blocks that a request has given back are null blocks from
    then on; they are given back in order, so that an update looks at the first one that is left. Behind a row's blocks
    the array always holds the null block.

    Attributes:
        array: ``[max_num_reqs, max_blocks]`` int32.
        num_blocks: ``[max_num_reqs]`` int32: blocks in each row.
        block_size: tokens in one block.

    Raises:
        ValueError: a size is below 1.
    """

    def __init__(self, max_num_reqs: int, max_blocks: int, block_size: int) -> None:
        for name, value in (("max_num_reqs", max_num_reqs), ("max_blocks", max_blocks), ("block_size", block_size)):
            require_at_least(self, name, value, 1)
        self.block_size = block_size
        self.array: npt.NDArray[np.int32] = np.full((max_num_reqs, max_blocks), NULL_BLOCK, dtype=np.int32)
        self.num_blocks: npt.NDArray[np.int32] = np.zeros(max_num_reqs, dtype=np.int32)
        # The column of each row up to which blocks are given back, as far as is known.
        self._num_null: list[int] = [0] * max_num_reqs
        self._batch = np.full(max_num_reqs * max_blocks, NULL_BLOCK, dtype=np.int32)

    @property
    def max_blocks(self) -> int:
        """Columns: the most blocks that a row takes."""
        return int(self.array.shape[1])

    def append(self, row: int, block_ids: Sequence[int]) -> None:
        """Add blocks behind those that the row has.

        Raises:
            ValueError: they do not fit; nothing is written.
        """
        start = int(self.num_blocks[row])
        end = start + len(block_ids)
        if end > self.max_blocks:
            raise ValueError(
                f"row {row} has {start} blocks and gets {len(block_ids)} more; a row takes {self.max_blocks}"
            )
        self.array[row, start:end] = block_ids
        self.num_blocks[row] = end

    def update(self, row: int, block_ids: Sequence[int], num_kept: int = 0) -> None:
        """Bring a row up to ``block_ids``, all blocks of its request, of which it has the first ones already.

        Blocks that are given back are null blocks: those from ``num_kept`` on to the first that the request still
        holds.

        Args:
            row: the request's row.
            block_ids: its blocks.
            num_kept: blocks at the front that are held to the end; the same at each update.

        Raises:
            ValueError: they do not fit, or are fewer than the row has; nothing is written.
        """
        known = int(self.num_blocks[row])
        if len(block_ids) < known:
            raise ValueError(
                f"row {row} has {known} blocks and its request {len(block_ids)}; clear the row when a request gives "
                "blocks back"
            )
        if len(block_ids) > known:
            self.append(row, block_ids[known:])
        first = null = max(self._num_null[row], num_kept)
        while null < len(block_ids) and block_ids[null] == NULL_BLOCK:
            null += 1
        if null > first:
            self.array[row, first:null] = NULL_BLOCK
            self._num_null[row] = null

    def clear(self, row: int) -> None:
        """Empty a row."""
        self.array[row, : self.num_blocks[row]] = NULL_BLOCK
        self.num_blocks[row] = 0
        self._num_null[row] = 0

    def move(self, source: int, target: int) -> None:
        """Put a row in another's place; the old place is empty then."""
        if source == target:
            return
        self.array[target] = self.array[source]
        self.num_blocks[target] = self.num_blocks[source]
        self._num_null[target] = self._num_null[source]
        self.clear(source)

    def swap(self, row: int, other: int) -> None:
        """Let two rows change places."""
        self.array[[row, other]] = self.array[[other, row]]
        self.num_blocks[[row, other]] = self.num_blocks[[other, row]]
        self._num_null[row], self._num_null[other] = self._num_null[other], self._num_null[row]

    def gather(
        self, rows: Indices, num_columns: int | None = None, num_padded_rows: int | None = None
    ) -> npt.NDArray[np.int32]:
        """The rows of a batch, in its order.

        Args:
            rows: ``[num_reqs]``, the batch's rows in this table.
            num_columns: columns that are wanted, from the first; ``None`` for all.
            num_padded_rows: rows that the batch is padded to; ``None`` for no padding.

        Returns:
            ``[num_padded_rows, num_columns]`` int32, contiguous: the front of one persistent buffer, valid until the
            next call. The rows added by padding hold the null block.

        Raises:
            ValueError: there are more rows than ``num_padded_rows``, or more rows or columns than the table has.
        """
        at = np.asarray(rows, dtype=np.int64)
        num_reqs, columns = len(at), self.max_blocks if num_columns is None else num_columns
        total = num_reqs if num_padded_rows is None else num_padded_rows
        if not num_reqs <= total <= len(self.array) or not 0 <= columns <= self.max_blocks:
            raise ValueError(
                f"{num_reqs} rows padded to {total}, with {columns} columns, were asked for; the table has "
                f"{len(self.array)} rows and {self.max_blocks} columns"
            )
        batch = self._batch[: total * columns].reshape(total, columns)
        batch[:num_reqs] = self.array[at, :columns]
        batch[num_reqs:] = NULL_BLOCK
        return batch

    def slots(
        self, rows: Indices, positions: Indices, out: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.int64]:
        """See `slots_of`; ``rows`` are rows of this table.

        Raises:
            ValueError: a position lies behind its row's blocks, ``rows`` and ``positions`` differ in length, or
                ``out`` is too short.
        """
        at_rows, at = np.asarray(rows, dtype=np.int64), np.asarray(positions, dtype=np.int64)
        if at_rows.shape == at.shape and at.size:
            beyond = np.flatnonzero(at >= self.num_blocks[at_rows].astype(np.int64) * self.block_size)
            if beyond.size:
                row, position = at_rows[beyond[0]], at[beyond[0]]
                raise ValueError(
                    f"position {position} of row {row} has no block: the row has {self.num_blocks[row]} blocks of "
                    f"{self.block_size} tokens. Allocate slots before the batch is built"
                )
        return slots_of(self.array, at_rows, at, self.block_size, out)
