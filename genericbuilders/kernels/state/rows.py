"""Which tokens run through which state, for the kernels of state-space layers."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["StateRows"]


class StateRows(NamedTuple):
    """Rows of new tokens, each through one request's state, cut into chunks.

    Row ``r`` starts from the state in block ``initial_state[r]`` and feeds tokens ``query_start_loc[r]`` to
    ``query_start_loc[r + 1]``. They are cut into the chunks ``row_chunks[r]`` to ``row_chunks[r + 1]``; after chunk
    ``c`` the state is stored in block ``chunk_state[c]``. Where an index is the null block (0), a row starts from
    zeros, and a state is not stored. A row without tokens has no chunk, so that no state of its is read or written.

    Index tensors are int32, contiguous, and on the device of the states. Rows may share a block only if one row at most
    stores there and no other reads it. A row reads its initial state before it stores any.

    Attributes:
        num_tokens: tokens of all rows.
        max_chunks: the most chunks in a row.
        max_chunk_len: the most tokens in a chunk; with ``max_chunks`` 1 this tells single-token decodes.
        query_start_loc: ``[num_rows + 1]``.
        initial_state: ``[num_rows]``.
        row_chunks: ``[num_rows + 1]``.
        chunk_start_loc: ``[num_chunks + 1]``.
        chunk_state: ``[num_chunks]``.
        last_only: whether states are stored behind rows' last tokens only, so that a kernel may take the chunks of a
            row as one; false where the host does not know.
        query_start_loc_cpu: `query_start_loc` on the host, where it is there anyway; ``None`` where it is not, as in
            rows for a graph.
    """

    num_tokens: int
    max_chunks: int
    max_chunk_len: int
    query_start_loc: Tensor
    initial_state: Tensor
    row_chunks: Tensor
    chunk_start_loc: Tensor
    chunk_state: Tensor
    last_only: bool = False
    query_start_loc_cpu: Tensor | None = None

    @property
    def num_rows(self) -> int:
        """Rows, those without tokens included."""
        return len(self.initial_state)

    @property
    def single_tokens(self) -> bool:
        """Whether every row is one token in one chunk, so that tokens, rows and chunks coincide."""
        return self.max_chunk_len == 1 and self.max_chunks == 1 and self.num_tokens == len(self.initial_state)
