"""How an indexer's prefills are cut into chunks of query tokens: host arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from genericbuilders.kernels.ints import Ints

__all__ = ["IndexPiece", "cut_queries"]


@dataclass(frozen=True, eq=False)
class IndexPiece:
    """Rows that follow one another, or a part of one.

    Attributes:
        row: the first.
        skipped: tokens of it in front of the part.
        counts: ``[num_rows]``: tokens of each.
        lengths: ``[num_rows]``: of each sequence, up to the last of these tokens.
    """

    row: int
    skipped: int
    counts: Ints
    lengths: Ints


def cut_queries(counts: Ints, lengths: Ints, max_logits: int, topk: int) -> list[IndexPiece]:
    """Cut rows into pieces whose scores, padded to the longest row and sequence, are at most ``max_logits``.

    Only a piece of one token may have more, if its sequence is longer than that. Rows are put together while padding is
    no more than half of the scores; those that need no scores, since ``topk`` takes all of their sequence, stay apart
    from others. Pieces cover every row's tokens in order; none is empty. The loop runs over pieces.

    Args:
        counts: ``[num_rows]``: new tokens.
        lengths: ``[num_rows]``: of the sequences; 0 for rows without tokens.
        max_logits: scores of a piece.
        topk: tokens that are selected for each.
    """
    counts, lengths = counts.astype(np.int64), lengths.astype(np.int64)
    short = lengths <= topk
    found: list[IndexPiece] = []
    row = 0
    while row < len(counts):
        padded = np.maximum.accumulate(counts[row:]) * np.maximum.accumulate(lengths[row:])
        padded *= np.arange(1, len(padded) + 1)
        scored = (counts[row:] * lengths[row:]).cumsum()
        fits = (padded <= max_logits) & (padded <= 2 * scored) & ((short[row:] == short[row]) | (counts[row:] == 0))
        rows = len(fits) if fits.all() else int(fits.argmin())
        if rows:
            taken = slice(row, row + rows)
            if counts[taken].any():
                found.append(IndexPiece(row, 0, counts[taken], lengths[taken]))
            row += rows
            continue
        found += _cut_row(row, int(counts[row]), int(lengths[row]), max_logits)
        row += 1
    return found


def _cut_row(row: int, count: int, length: int, max_logits: int) -> list[IndexPiece]:
    """The pieces of one row, each as wide as the sequence up to its end allows."""
    found: list[IndexPiece] = []
    skipped = 0
    while skipped < count:
        before = length - count + skipped
        # The largest width for which width * (before + width) is within the bound.
        width = (math.isqrt(before * before + 4 * max_logits) - before) // 2
        width = min(max(1, width), count - skipped)
        found.append(IndexPiece(row, skipped, np.array([width]), np.array([before + width])))
        skipped += width
    return found
