"""What a batch says of its speculative rows, and whether that can be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from genericbuilders.kernels.ints import Ints
from genericbuilders.keys import TypedMap
from genericbuilders.metadata import BuildInput, CommonAttentionMetadata

__all__ = ["NUM_ACCEPTED_TOKENS", "NUM_DECODE_DRAFT_TOKENS", "drafted", "read_speculation"]

NUM_ACCEPTED_TOKENS: BuildInput[Tensor] = BuildInput("num_accepted_tokens")
"""``[num_reqs]`` int32 on the host: tokens of each row's last step that were kept, with the sampled one; at least 1."""

NUM_DECODE_DRAFT_TOKENS: BuildInput[Tensor] = BuildInput("num_decode_draft_tokens")
"""``[num_reqs]`` int32 on the host: draft tokens that each row carries; -1 for a row that is no speculative decode."""


def read_speculation(
    common: CommonAttentionMetadata, num_speculative: int
) -> tuple[Ints | None, npt.NDArray[np.bool_] | None]:
    """Accepted tokens a row, ``[num_reqs]``, and which rows are speculative, ``[num_reqs]``.

    Neither is known, ``None``, where no speculative states are kept, and where nothing continues a state.

    Args:
        common: the batch; `NUM_ACCEPTED_TOKENS` and `NUM_DECODE_DRAFT_TOKENS` among its inputs.
        num_speculative: states that a request keeps beside its own; 0 for none.

    Raises:
        ValueError: a row's counts cannot be, or a row continues a state and nothing says which.
    """
    if not num_speculative:
        return None, None
    lens = np.diff(common.query_start_loc_cpu.numpy())
    if NUM_ACCEPTED_TOKENS not in common.inputs:
        continued = np.flatnonzero((lens > 0) & (common.num_computed_tokens_cpu.numpy() > 0))
        if continued.size:
            raise ValueError(
                f"row {continued[0]} continues one of {1 + num_speculative} states, but common.inputs does "
                "not say which: put NUM_ACCEPTED_TOKENS there"
            )
        return None, None
    accepted: Ints = common.inputs[NUM_ACCEPTED_TOKENS].numpy()
    most = 1 + num_speculative
    if NUM_DECODE_DRAFT_TOKENS not in common.inputs:
        speculative = np.zeros(len(lens), dtype=np.bool_)
    else:
        drafts: Ints = common.inputs[NUM_DECODE_DRAFT_TOKENS].numpy()
        speculative = (drafts >= 0) & (lens > 0)
        odd = np.flatnonzero(speculative & (lens != drafts + 1))
        if odd.size:
            raise ValueError(
                f"row {odd[0]} has {lens[odd[0]]} tokens and {drafts[odd[0]]} drafts; a speculative row has one "
                "token more than drafts, any other -1 drafts"
            )
    wrong = np.flatnonzero(((accepted < 1) | (accepted > most)) & (lens > 0))
    if wrong.size:
        raise ValueError(
            f"row {wrong[0]} has {accepted[wrong[0]]} accepted tokens; with {num_speculative} speculative "
            f"states it must be 1 to {most}"
        )
    long = np.flatnonzero(speculative & (lens > most))
    if long.size:
        raise ValueError(
            f"row {long[0]} carries {lens[long[0]]} candidates; with {num_speculative} speculative states "
            f"there can be {most}"
        )
    return accepted, speculative


def drafted(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """``common``, whose rows are all equally long, with every token but each row's first as a draft: for a capture."""
    inputs = TypedMap()
    drafts = common.max_query_len - 1 or -1
    inputs.put(NUM_ACCEPTED_TOKENS, torch.ones(common.num_reqs, dtype=torch.int32))
    inputs.put(NUM_DECODE_DRAFT_TOKENS, torch.full((common.num_reqs,), drafts, dtype=torch.int32))
    return replace(common, inputs=inputs)
