"""What both sides' metadata of a state-space batch say, as plain lists. Needs torch alone: a peer's environment runs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from batches import Batch, make_batch
from torch import Tensor

__all__ = ["CHUNK_SIZE", "FIELDS", "SHAPES", "shown", "state_rows"]

CHUNK_SIZE = 8
SHAPES: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "mamba1": ((3, 5), (5, 4)),
    "mamba2": ((3, 5), (2, 3, 4)),
    "gdn": ((3, 5), (2, 3, 4)),
    "linear": ((2, 3, 3),),
    "bailing_linear": ((2, 3, 3),),
    "short_conv": ((3, 5),),
}
"""The tensors of a small state of each back end."""

COUNTS = ("num_prefills", "num_prefill_tokens", "num_decodes", "num_decode_tokens")
SPLIT = ("state_indices_tensor_d", "state_indices_tensor_p", "has_initial_states_p", "query_start_loc_p")
CHUNKS = ("cu_chunk_seqlen_p", "seq_idx_p", "last_chunk_indices_p", "prep_initial_states")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "mamba1": (*COUNTS, *SPLIT),
    "mamba2": (*COUNTS, *SPLIT, *CHUNKS),
    "short_conv": (*COUNTS, *SPLIT),
    "linear": (*COUNTS, "query_start_loc", "seq_lens", "state_indices_tensor"),
    "bailing_linear": (*COUNTS, "query_start_loc", "seq_lens", "state_indices_tensor"),
    "gdn": (*COUNTS, "num_spec_decodes", "num_actual_tokens"),
}
"""For each back end the fields that both sides have."""


def shown(metadata: object, backend: str) -> dict[str, list[int] | int | None]:
    """The fields of ``metadata``, tensors as flat lists."""
    return {name: _plain(getattr(metadata, name)) for name in FIELDS[backend]}


def state_rows(rows: list[tuple[int, int]]) -> Batch:
    """The batch of ``rows`` (new tokens, sequence length) with one state a request, in a table of one column."""
    batch = make_batch(rows)
    return dataclasses.replace(batch, block_table=torch.arange(1, len(rows) + 1, dtype=torch.int32).view(-1, 1))


def _plain(value: Tensor | int | None) -> list[int] | int | None:
    return [int(each) for each in value.flatten()] if isinstance(value, Tensor) else value
