"""Random rows through states: what the tests of every state-space kernel draw."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.kernels.state.rows import StateRows

__all__ = ["make_rows", "named_blocks", "paged_states", "row_alone", "state_rows"]


def make_rows(
    lengths: Sequence[Sequence[int]], initial: Sequence[int], stores: Sequence[Sequence[int]], device: str = "cpu"
) -> StateRows:
    """Rows from lists: for each row its chunks' lengths, its initial block, and the block that each chunk stores in."""
    chunk_lens = [length for row in lengths for length in row]
    return StateRows(
        num_tokens=sum(chunk_lens),
        max_chunks=max((len(row) for row in lengths), default=0),
        max_chunk_len=max(chunk_lens, default=0),
        query_start_loc=_starts([sum(row) for row in lengths]).to(device),
        initial_state=torch.tensor(initial, dtype=torch.int32, device=device),
        row_chunks=_starts([len(row) for row in lengths]).to(device),
        chunk_start_loc=_starts(chunk_lens).to(device),
        chunk_state=torch.tensor([block for row in stores for block in row], dtype=torch.int32, device=device),
    )


def named_blocks(rows: StateRows) -> list[int]:
    """The blocks in which some chunk stores, ascending; no other block may change."""
    return sorted({int(block) for block in rows.chunk_state} - {0})


def row_alone(rows: StateRows, row: int) -> tuple[StateRows, slice]:
    """One row as a batch of its own, and which tokens of the whole batch it has."""
    start, end = int(rows.query_start_loc[row]), int(rows.query_start_loc[row + 1])
    chunks = range(int(rows.row_chunks[row]), int(rows.row_chunks[row + 1]))
    lengths = [int(rows.chunk_start_loc[chunk + 1] - rows.chunk_start_loc[chunk]) for chunk in chunks]
    stores = [int(rows.chunk_state[chunk]) for chunk in chunks]
    return make_rows([lengths], [int(rows.initial_state[row])], [stores]), slice(start, end)


def paged_states(num_blocks: int, *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random states ``[num_blocks, *shape]`` that are views into pages of bytes, with something else behind each."""
    numbers = torch.randn(num_blocks, *shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    size = numbers[0].numel() * numbers.element_size()
    pages = torch.full((num_blocks, size + 48), 77, dtype=torch.int8)
    steps = numbers[0].stride()
    states = pages.view(dtype).as_strided(numbers.shape, ((size + 48) // numbers.element_size(), *steps))
    states.copy_(numbers)
    return states


@st.composite
def state_rows(
    draw: st.DrawFn, *, max_rows: int = 4, max_chunks: int = 3, max_chunk_len: int = 6
) -> tuple[StateRows, int]:
    """Rows, and the number of blocks that they need (block 0 and some that nobody names included).

    Rows have no, one or many tokens and chunks of any length; now and then all are single tokens. A row starts from
    zeros, from a block of its own or from one that others read too; a chunk stores nowhere, in a block of its own, or
    in the row's initial one. No two chunks store in one block.
    """
    if draw(st.integers(0, 3)) == 0:
        lengths = [[1]] * draw(st.integers(1, max_rows))
    else:
        chunk = st.integers(1, max_chunk_len)
        row = st.one_of(
            st.just([1]),
            st.lists(chunk, min_size=1, max_size=1),
            st.lists(chunk, min_size=0, max_size=max_chunks),
        )
        lengths = draw(st.lists(row, min_size=1, max_size=max_rows))
    shared = 1
    used = 2
    initial: list[int] = []
    stores: list[list[int]] = []
    for row_lengths in lengths:
        first = draw(st.sampled_from(["zeros", "shared", "own"]))
        own = used
        used += first == "own"
        initial.append({"zeros": 0, "shared": shared, "own": own}[first])
        back = draw(st.integers(-1, len(row_lengths) - 1)) if first == "own" else -1
        row_stores: list[int] = []
        for place in range(len(row_lengths)):
            if place == back:
                row_stores.append(own)
            elif draw(st.booleans()):
                row_stores.append(used)
                used += 1
            else:
                row_stores.append(0)
        stores.append(row_stores)
    num_blocks = used + 2
    order = [0, *draw(st.permutations(range(1, num_blocks)))]
    return (
        make_rows(lengths, [order[block] for block in initial], [[order[block] for block in row] for row in stores]),
        num_blocks,
    )


def _starts(lengths: Sequence[int]) -> Tensor:
    return torch.tensor(list(accumulate(lengths, initial=0)), dtype=torch.int32)
