"""Codes in bytes and back."""

from __future__ import annotations

import pytest
import torch
from attention_batches import ints
from hypothesis import given, settings
from hypothesis import strategies as st

from genericbuilders.kernels.quant.packing import pack, packed_size, unpack


@settings(max_examples=60, deadline=None)
@given(data=st.data(), bits=st.integers(1, 8))
def test_what_is_packed_comes_back(data: st.DataObject, bits: int) -> None:
    rows = data.draw(st.lists(st.lists(st.integers(0, 2**bits - 1), min_size=5, max_size=5), max_size=4))
    count = data.draw(st.integers(0, 5))
    codes = torch.tensor(rows, dtype=torch.uint8).view(-1, 5)[:, :count]
    packed = pack(codes, bits)
    assert packed.shape == (len(rows), -(-count * bits // 8))
    assert torch.equal(unpack(packed, bits, count), codes)


def test_the_lowest_bits_come_first() -> None:
    codes = torch.tensor([1, 2, 3, 4, 5, 6, 7, 0], dtype=torch.uint8)
    word = sum(code << 3 * place for place, code in enumerate([1, 2, 3, 4, 5, 6, 7, 0]))
    assert ints(pack(codes, 3)) == list(word.to_bytes(3, "little"))
    assert ints(pack(torch.tensor([1, 15, 2], dtype=torch.uint8), 4)) == [0xF1, 0x02]


def test_sizes() -> None:
    assert [packed_size(64, bits) for bits in (1, 2, 3, 4)] == [8, 16, 24, 32]
    assert packed_size(9, 3) == 4


@pytest.mark.parametrize("bits", [0, 9])
def test_other_bits_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 8 bits, not {bits}"):
        pack(torch.zeros(8, dtype=torch.uint8), bits)
    with pytest.raises(ValueError, match=f"1 to 8 bits, not {bits}"):
        unpack(torch.zeros(8, dtype=torch.uint8), bits, 8)


def test_other_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="64 codes of 3 bits take 24 bytes, but 23 were given"):
        unpack(torch.zeros(2, 23, dtype=torch.uint8), 3, 64)
