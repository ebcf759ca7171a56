from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from genericbuilders.cache import NULL_BLOCK, BlockTable
from genericbuilders.cache.block_table import PADDING_SLOT, slots_of


def rows_of(table: BlockTable) -> list[list[int]]:
    return [list(table.array[row, : table.num_blocks[row]]) for row in range(len(table.array))]


@given(st.data())
def test_rows_agree_with_lists(data: st.DataObject) -> None:
    num_rows, columns = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    table = BlockTable(num_rows, columns, block_size=2)
    model: list[list[int]] = [[] for _ in range(num_rows)]
    row = st.integers(0, num_rows - 1)
    for _ in range(data.draw(st.integers(0, 12))):
        a, b = data.draw(row), data.draw(row)
        action = data.draw(st.sampled_from(["append", "update", "give back", "move", "swap", "clear"]))
        blocks = data.draw(st.lists(st.integers(1, 99), max_size=columns - len(model[a])))
        if action == "append":
            table.append(a, blocks)
            model[a] += blocks
        elif action == "update":
            model[a] += blocks
            table.update(a, model[a])
        elif action == "give back":
            # From the front, as requests do, and perhaps with new blocks at the end.
            count = data.draw(st.integers(0, len(model[a])))
            model[a] = [NULL_BLOCK] * count + model[a][count:] + blocks
            table.update(a, model[a])
        elif action == "move":
            table.move(a, b)
            if a != b:
                model[a], model[b] = [], model[a]
        elif action == "swap":
            table.swap(a, b)
            model[a], model[b] = model[b], model[a]
        else:
            table.clear(a)
            model[a] = []
        assert rows_of(table) == model
        # Nothing stale is left behind a row's blocks.
        assert table.array.tolist() == [found + [NULL_BLOCK] * (columns - len(found)) for found in model]


@given(st.data())
def test_blocks_are_given_back_behind_those_that_are_kept(data: st.DataObject) -> None:
    kept, num_blocks = data.draw(st.integers(0, 4)), data.draw(st.integers(4, 8))
    table = BlockTable(2, 12, block_size=2)
    model = list(range(1, num_blocks + 1))
    table.update(1, model, kept)
    for _ in range(data.draw(st.integers(1, 5))):
        stop = data.draw(st.integers(kept, len(model)))
        model[kept:stop] = [NULL_BLOCK] * (stop - kept)
        model += [50] * data.draw(st.integers(0, min(2, 12 - len(model))))
        table.update(1, model, kept)
        assert rows_of(table) == [[], model]
    table.clear(1)
    table.update(1, [7, 8, 9])
    assert rows_of(table) == [[], [7, 8, 9]]


@given(st.data())
def test_slots_agree_with_the_formula(data: st.DataObject) -> None:
    block_size = data.draw(st.sampled_from([1, 3, 16]))
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    table = BlockTable(len(lengths), 5, block_size)
    # Ids so large that a slot does not fit 32 bits.
    blocks = iter(data.draw(st.permutations(range(2**31 - 1 - sum(lengths), 2**31 - 1))))
    for row, length in enumerate(lengths):
        table.append(row, [next(blocks) for _ in range(length)])
    places = [(row, position) for row, length in enumerate(lengths) for position in range(length * block_size)]
    batch = data.draw(st.lists(st.sampled_from(places), max_size=20)) if places else []
    rows, positions = [row for row, _ in batch], [position for _, position in batch]
    expected = [int(table.array[r, p // block_size]) * block_size + p % block_size for r, p in batch]

    slots = table.slots(rows, positions)
    assert slots.dtype == np.int64
    assert slots.tolist() == expected
    stale = np.full(25, 12345, dtype=np.int64)
    padded = table.slots(rows, positions, out=stale)
    assert padded is stale
    assert padded.tolist() == expected + [PADDING_SLOT] * (25 - len(expected))


def test_padded_rows_are_neutral_whatever_was_there_before() -> None:
    table = BlockTable(4, 3, block_size=2)
    for row in range(4):
        table.append(row, [10 * row + 1, 10 * row + 2, 10 * row + 3])
    full = table.gather([3, 2, 1, 0])
    assert full[0].tolist() == [31, 32, 33]
    table.clear(1)
    table.append(1, [7])
    padded = table.gather([1, 0], num_padded_rows=4)
    assert padded.tolist() == [[7, 0, 0], [1, 2, 3], [0, 0, 0], [0, 0, 0]]
    assert np.shares_memory(full, padded)
    assert table.gather([1], num_columns=1, num_padded_rows=3).tolist() == [[7], [0], [0]]
    assert table.gather([0, 1], num_columns=2).flags.c_contiguous
    assert table.gather([], num_padded_rows=2).tolist() == [[0] * 3] * 2
    # A token of a neutral row is not stored either: the null block has no slots to write to.
    neutral = np.zeros((1, 3), dtype=np.int32)
    assert slots_of(neutral, [0, 0], [0, 5], block_size=2).tolist() == [-1, -1]


def test_blocks_that_are_given_back_leave_null_blocks() -> None:
    table = BlockTable(2, 6, block_size=2)
    for blocks in ([5], [5, 6], [0, 6, 7], [0, 0, 7, 0, 9], [0, 0, 0, 0, 9, 4]):
        table.update(0, blocks)
        assert rows_of(table)[0] == blocks
    table.move(0, 1)
    table.update(0, [3])
    table.update(1, [0, 0, 0, 0, 0, 4])
    table.swap(0, 1)
    table.update(1, [0, 2])
    assert rows_of(table) == [[0, 0, 0, 0, 0, 4], [0, 2]]
    # A row that takes another's place brings what it knows of null blocks along.
    table.move(1, 0)
    table.update(0, [0, 2, 3])
    table.update(0, [0, 0, 3])
    assert rows_of(table) == [[0, 0, 3], []]
    table.update(0, [0, 0, 0, 0, 0, 4])
    # A token whose state is not there any more has no slot either.
    assert table.slots([0, 0, 0], [0, 9, 10]).tolist() == [-1, -1, 8]


class Watched(Sequence[int]):
    """Null blocks, then blocks 1, 2, ..., and how often one is read."""

    def __init__(self, num_blocks: int, num_null: int = 0) -> None:
        self.num_blocks = num_blocks
        self.num_null = num_null
        self.reads = 0

    def __len__(self) -> int:
        return self.num_blocks

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    @override
    def __getitem__(self, index: int | slice) -> int | list[int]:
        self.reads += 1
        return [max(0, block - self.num_null) for block in range(1, self.num_blocks + 1)][index]


@pytest.mark.parametrize("num_null", [0, 500])
def test_an_update_looks_at_one_old_block_however_many_there_are(num_null: int) -> None:
    table = BlockTable(1, 1000, block_size=2)
    blocks = Watched(999, num_null)
    table.update(0, blocks)
    blocks.reads = 0
    table.update(0, blocks)
    assert blocks.reads == 1


def test_what_does_not_fit_is_refused() -> None:
    table = BlockTable(2, 2, block_size=4)
    table.append(0, [1])
    with pytest.raises(ValueError, match="row 0 has 1 blocks and gets 2 more; a row takes 2"):
        table.append(0, [2, 3])
    with pytest.raises(ValueError, match="row 0 has 1 blocks and its request 0"):
        table.update(0, [])
    assert rows_of(table) == [[1], []]
    with pytest.raises(ValueError, match="position 4 of row 0 has no block: the row has 1 blocks of 4"):
        table.slots([0, 0], [3, 4])
    with pytest.raises(ValueError, match=r"both must be \[num_tokens\]"):
        table.slots([0, 0], [3])
    with pytest.raises(ValueError, match="out holds 1 slots; the batch has 2 tokens"):
        table.slots([0, 0], [0, 1], out=np.zeros(1, dtype=np.int64))
    with pytest.raises(IndexError, match="negative"):
        table.slots([0], [-1])
    with pytest.raises(ValueError, match="3 rows padded to 3"):
        table.gather([0, 1, 0])
    with pytest.raises(ValueError, match="2 rows padded to 1"):
        table.gather([0, 1], num_padded_rows=1)
    with pytest.raises(ValueError, match="3 columns"):
        table.gather([0], num_columns=3)
    with pytest.raises(ValueError, match="max_blocks is 0"):
        BlockTable(1, 0, 1)
