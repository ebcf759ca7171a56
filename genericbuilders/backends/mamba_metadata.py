"""The metadata of a batch of states, which all state-space back ends share."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from genericbuilders.backends.state_plan import ChunkPlan
from genericbuilders.kernels.state.rows import StateRows

__all__ = ["BaseMambaMetadata"]


@dataclass
class BaseMambaMetadata:
    """One batch for a state-space layer. Names mean what they mean in vLLM; tensors are on the device.

    Rows come as the runner orders them: decodes first, so that the first ``num_decodes`` rows and tokens are theirs,
    unless speculative rows stand between. A decode is a row of one token that continues a state; a row that starts a
    state is a prefill, however short. Rows without tokens (padding) are neither.

    Attributes:
        num_reqs: rows, padding included.
        num_actual_tokens: new tokens of all rows.
        num_decodes: rows at the front of one token each that continue a state.
        num_decode_tokens: their tokens.
        num_prefills: rows that are neither those, nor speculative, nor empty.
        num_prefill_tokens: their tokens.
        num_spec_decodes: rows whose tokens are candidates, one state each.
        num_spec_decode_tokens: their tokens.
        query_start_loc: ``[num_reqs + 1]`` int32.
        seq_lens: ``[num_reqs]`` int32.
        rows: the batch as kernels take it.
        plan: where the states in ``rows`` stand in a block table; ``None`` if each row is one chunk, in column 0.
        chunk_size: tokens of a whole chunk; ``None`` if kernels have no chunks.
    """

    num_reqs: int
    num_actual_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    num_prefill_tokens: int
    num_spec_decodes: int
    num_spec_decode_tokens: int
    query_start_loc: Tensor
    seq_lens: Tensor
    rows: StateRows
    plan: ChunkPlan | None = field(repr=False)
    chunk_size: int | None

    @property
    def has_initial_states(self) -> Tensor:
        """``[num_reqs]`` bool: whether a row continues a state."""
        return self.rows.initial_state != 0

    @property
    def state_indices_tensor(self) -> Tensor:
        """``[num_reqs]`` int32: the block of each row's last state; the null block for rows without tokens."""
        chunks = self.rows.row_chunks
        if len(self.rows.chunk_state) == len(chunks) - 1 == self.num_reqs:
            return self.rows.chunk_state
        last = (chunks[1:] - 1).clamp(min=0).long()
        return torch.where(chunks[1:] > chunks[:-1], self.rows.chunk_state[last], 0)

    @property
    def state_indices_tensor_d(self) -> Tensor:
        """``[num_decodes]`` int32: the blocks of the decodes' states. Without speculative rows in the batch."""
        return self.state_indices_tensor[: self.num_decodes]

    @property
    def state_indices_tensor_p(self) -> Tensor:
        """``[num_prefills]`` int32: the same of the prefills."""
        return self.state_indices_tensor[self.prefill_rows]

    @property
    def has_initial_states_p(self) -> Tensor | None:
        """``[num_prefills]`` bool: whether a prefill continues a state; ``None`` without prefills."""
        return self.has_initial_states[self.prefill_rows] if self.num_prefills else None

    @property
    def query_start_loc_p(self) -> Tensor | None:
        """``[num_prefills + 1]`` int32, from 0: where the prefills start among their tokens."""
        if not self.num_prefills:
            return None
        first = self.num_decodes
        return self.query_start_loc[first : first + self.num_prefills + 1] - self.num_decode_tokens

    @property
    def prefill_rows(self) -> slice:
        """The rows of the prefills, in a batch without speculative rows and without empty rows between others."""
        return slice(self.num_decodes, self.num_decodes + self.num_prefills)
