"""Batches of state-space rows for tests, and what happens in them, told row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from state_fields import SHAPES as OWN_SHAPES
from torch import Tensor
from typing_extensions import TypeVar

from genericbuilders.adapter import BoundGroup, StateAdapter
from genericbuilders.backends.mamba_base import (
    NUM_ACCEPTED_TOKENS,
    NUM_DECODE_DRAFT_TOKENS,
    BaseMambaMetadata,
)
from genericbuilders.config import EngineConfig, StateLayerConfig
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.keys import TypedMap
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaCacheMode, MambaSpec

__all__ = ["CHUNK", "CPU", "SHAPES", "Told", "bind_state", "block_of", "expected", "state_batch", "state_spec", "tell"]

M = TypeVar("M")
X = TypeVar("X")

CPU = torch.device("cpu")
CHUNK = 4
SHAPES = OWN_SHAPES["mamba2"]
DTYPES = (torch.float32, torch.float32)
COLUMNS = 64


@dataclass(frozen=True)
class Told:
    """What a batch does to one row's states.

    Attributes:
        initial: the block that the row starts from; 0 if it starts empty.
        stores: the block that the state is stored in, by the number of the batch's tokens before that.
    """

    initial: int
    stores: Mapping[int, int]


def state_spec(
    mode: MambaCacheMode = "none",
    block_size: int = 8,
    num_speculative: int = 0,
    shapes: tuple[tuple[int, ...], ...] = SHAPES,
) -> MambaSpec:
    return MambaSpec(
        block_size=block_size,
        shapes=shapes,
        dtypes=DTYPES[: len(shapes)],
        mamba_cache_mode=mode,
        num_speculative_blocks=num_speculative,
    )


def bind_state(
    adapter: StateAdapter[M, MambaSpec, X], spec: MambaSpec, chunk_size: int = CHUNK, max_num_seqs: int = 64
) -> BoundGroup[M, MambaSpec]:
    """The back end bound to ``spec``, with states of its own shapes where ``spec`` has the shapes of another."""
    if spec.shapes == SHAPES:
        shapes = OWN_SHAPES[adapter.name]
        spec = replace(spec, shapes=shapes, dtypes=DTYPES[: len(shapes)])
    layer = StateLayerConfig(spec.shapes, spec.dtypes, chunk_size)
    config = EngineConfig(max_model_len=512, max_num_seqs=max_num_seqs, layers={"l0": layer})
    return adapter.bind(spec, [adapter.layer("l0", layer)], config, CPU)


def block_of(row: int, column: int) -> int:
    """The block in a place of the batch's table; each place has one of its own."""
    return 1 + row * COLUMNS + column


def state_batch(
    rows: Sequence[tuple[int, int]],
    *,
    padding: int = 0,
    padded_tokens: int = 0,
    stale: int = 7,
    columns: int = COLUMNS,
    accepted: Sequence[int] | None = None,
    drafts: Sequence[int] | None = None,
) -> CommonAttentionMetadata:
    """A batch of ``rows``: new tokens, and tokens computed before.

    Args:
        rows: one for each request.
        padding: rows that padding adds.
        padded_tokens: tokens that each of those has in the batch, as in a graph of decodes.
        stale: what the buffers hold for them where nothing was written.
        columns: of the block table.
        accepted: tokens of each row that were kept in its last step.
        drafts: draft tokens in each row; -1 for none.
    """
    total = len(rows) + padding
    lens = [new for new, _ in rows] + [0] * padding
    before = [old for _, old in rows] + [stale] * padding
    starts = torch.zeros(total + 1, dtype=torch.int32)
    starts[1:] = torch.tensor(lens, dtype=torch.int32).cumsum(0)
    table = torch.arange(1, 1 + total * COLUMNS, dtype=torch.int32).view(total, COLUMNS)[:, :columns].contiguous()
    table[len(rows) :] = 0
    lengths = torch.tensor([new + old for new, old in zip(lens, before, strict=True)], dtype=torch.int32)
    lengths[len(rows) :] = 0
    inputs = TypedMap()
    if accepted is not None:
        inputs.put(NUM_ACCEPTED_TOKENS, torch.tensor([*accepted, *[stale] * padding], dtype=torch.int32))
    if drafts is not None:
        inputs.put(NUM_DECODE_DRAFT_TOKENS, torch.tensor([*drafts, *[stale] * padding], dtype=torch.int32))
    num_tokens = int(starts[-1])
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lengths,
        seq_lens_cpu=lengths,
        num_computed_tokens_cpu=torch.tensor(before, dtype=torch.int32),
        num_reqs=total,
        num_actual_tokens=num_tokens,
        max_query_len=max(lens),
        max_seq_len=int(lengths.max()),
        block_table_tensor=table,
        slot_mapping=torch.full((num_tokens + padding * padded_tokens,), -1, dtype=torch.int64),
        inputs=inputs,
    )


def expected(
    rows: Sequence[tuple[int, int]],
    spec: MambaSpec,
    accepted: Sequence[int] | None = None,
    drafts: Sequence[int] | None = None,
) -> list[Told]:
    """What has to happen, token by token, by the definition of the modes."""
    told: list[Told] = []
    token = 0
    for row, (new, old) in enumerate(rows):
        if not new:
            told.append(Told(0, {}))
            continue
        initial_column = 0
        if spec.mamba_cache_mode != "none":
            initial_column = (old - 1) // spec.block_size
        elif accepted is not None:
            initial_column = accepted[row] - 1
        stores: dict[int, int] = {}
        for index in range(new):
            token += 1
            position = old + index
            last = index == new - 1
            if drafts is not None and drafts[row] >= 0:
                stores[token] = block_of(row, index)
            elif spec.mamba_cache_mode == "none":
                if last:
                    stores[token] = block_of(row, 0)
            elif last or (spec.mamba_cache_mode == "all" and (position + 1) % spec.block_size == 0):
                stores[token] = block_of(row, position // spec.block_size)
        told.append(Told(block_of(row, initial_column) if old else 0, stores))
    return told


def tell(rows: StateRows) -> list[Told]:
    """What a kernel does with ``rows``, by the definition of `StateRows`."""
    told: list[Told] = []
    initial, chunk_state = ints(rows.initial_state), ints(rows.chunk_state)
    row_chunks, starts = ints(rows.row_chunks), ints(rows.chunk_start_loc)
    for row, block in enumerate(initial):
        chunks = range(row_chunks[row], row_chunks[row + 1])
        stores = {starts[chunk + 1]: chunk_state[chunk] for chunk in chunks if chunk_state[chunk]}
        told.append(Told(block if chunks else 0, stores))
    return told


def counts(metadata: BaseMambaMetadata) -> tuple[int, int, int]:
    """Decodes, prefills and speculative rows."""
    return metadata.num_decodes, metadata.num_prefills, metadata.num_spec_decodes


def ints(tensor: Tensor) -> list[int]:
    """The values of an integer tensor."""
    return [int(value) for value in tensor]
