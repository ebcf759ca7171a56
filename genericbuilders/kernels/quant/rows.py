"""A batch's rows in groups that are worth computing together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from genericbuilders.kernels.validation import checked_counts

__all__ = ["Rows", "cut_rows", "decode_rows"]

# New tokens of one request that are padded together; a longer row is cut into several.
MAX_SEGMENT = 256
# Shorter rows are computed apart from those of more than twice their length, once it is worth a kernel's start.
SHORT = 256


@dataclass(frozen=True, eq=False)
class Rows:
    """Pieces of requests.

    Attributes:
        start: ``[num_rows]`` int64: their first token.
        new_tokens: ``[num_rows]`` int64.
        position: ``[num_rows]`` int64: of the first token in its sequence.
        length: ``[num_rows]`` int64: the keys that they see at most.
        request: ``[num_rows]`` int64.
        width: the most new tokens in a row.
        longest: the most keys of a row.
        seen_by_all: keys that every token of every row sees, at the front; 0 if nobody knows.
    """

    start: Tensor
    new_tokens: Tensor
    position: Tensor
    length: Tensor
    request: Tensor
    width: int
    longest: int
    seen_by_all: int


def decode_rows(query_start_loc: Tensor, seq_lens: Tensor, max_seq_len: int) -> Rows:
    """The rows of a batch with at most one new token each, without asking the device for anything."""
    new_tokens = query_start_loc.diff().long()
    length = seq_lens.long()
    request = torch.arange(len(length), device=length.device)
    return Rows(query_start_loc[:-1].long(), new_tokens, length - new_tokens, length, request, 1, max_seq_len, 0)


def cut_rows(
    query_start_loc: Tensor, seq_lens: Tensor, num_tokens: int, causal: bool, size: Callable[[int], int]
) -> Iterator[Rows]:
    """The rows of any batch, those of like width and length together; read from the device.

    Args:
        query_start_loc: ``[num_reqs + 1]``.
        seq_lens: ``[num_reqs]``.
        num_tokens: tokens in the batch, padding included.
        causal: whether a token sees only itself and what came before.
        size: how many rows of a width may be taken together; a number below 1 counts as 1.

    Raises:
        ValueError: a row's tokens are not in the batch, or, under ``causal``, more than its sequence.
    """
    starts, lengths = query_start_loc.cpu().numpy().astype(np.int64), seq_lens.cpu().numpy().astype(np.int64)
    columns = _segments(starts, lengths, num_tokens, causal)
    # Widths 1, 2, 3 to 4, 5 to 8, and so on.
    classes = np.frexp(columns[1] - 0.5)[1].clip(min=0)
    order = np.lexsort((-columns[3], -classes))
    columns, classes = columns[:, order], classes[order]
    first, count = 0, columns.shape[1]
    while first < count:
        last = min(count, first + max(1, size(2 ** int(classes[first]))))
        longs = columns[3, first:last]
        alike = (classes[first:last] == classes[first]) & (2 * longs + SHORT >= longs[0])
        last = first + (len(alike) if alike.all() else int(alike.argmin()))
        part = columns[:, first:last]
        seen = int((part[2] + 1 if causal else part[3]).min())
        start, new_tokens, position, length, request = (
            torch.as_tensor(np.ascontiguousarray(column)).to(query_start_loc.device) for column in part
        )
        yield Rows(
            start, new_tokens, position, length, request, int(part[1].max()), int(part[3].max()), seen_by_all=seen
        )
        first = last


def _segments(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], num_tokens: int, causal: bool
) -> npt.NDArray[np.int64]:
    """``[5, num_rows]``: the columns of `Rows` for all requests with new tokens and keys."""
    counts = checked_counts(starts, lengths, num_tokens, causal)
    pieces = -(-counts // MAX_SEGMENT)
    request = np.arange(len(counts)).repeat(pieces)
    ordinal = np.arange(len(request)) - (np.cumsum(pieces) - pieces).repeat(pieces)
    new_tokens = np.minimum(counts[request] - ordinal * MAX_SEGMENT, MAX_SEGMENT)
    position = lengths[request] - counts[request] + ordinal * MAX_SEGMENT
    length = position + new_tokens if causal else lengths[request]
    return np.stack([starts[request] + ordinal * MAX_SEGMENT, new_tokens, position, length, request])
