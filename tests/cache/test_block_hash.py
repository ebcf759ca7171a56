from __future__ import annotations

import hashlib
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from genericbuilders.cache import BlockHash, extend_block_hashes, hash_block

TOKENS = st.lists(st.integers(0, 2**40), max_size=40)
SIZES = st.integers(1, 7)


def hashes_of(token_ids: list[int], block_size: int, extra_key: bytes = b"") -> list[BlockHash]:
    hashes: list[BlockHash] = []
    extend_block_hashes(hashes, token_ids, block_size, extra_key)
    return hashes


@given(TOKENS, SIZES, st.lists(st.integers(0, 40), max_size=5))
def test_growing_step_by_step_is_the_same_as_at_once(tokens: list[int], size: int, stops: list[int]) -> None:
    grown: list[BlockHash] = []
    for stop in sorted(stops):
        extend_block_hashes(grown, tokens[:stop], size)
    extend_block_hashes(grown, tokens, size)
    assert grown == hashes_of(tokens, size)
    assert len(grown) == len(tokens) // size


@given(TOKENS, TOKENS, SIZES)
def test_hashes_are_equal_exactly_where_prefixes_are(first: list[int], second: list[int], size: int) -> None:
    for index, (a, b) in enumerate(zip(hashes_of(first, size), hashes_of(second, size), strict=False)):
        stop = (index + 1) * size
        assert (a == b) == (first[:stop] == second[:stop])


def test_hashed_blocks_are_not_looked_at_again() -> None:
    hashes = hashes_of([1, 2, 3, 4], 2)
    before = list(hashes)
    extend_block_hashes(hashes, [-1, -1, -1, -1, 5, 6], 2)
    assert hashes[:2] == before
    assert hashes[2] == hash_block(before[1], [5, 6])


def test_the_extra_key_and_the_block_size_are_part_of_the_hash() -> None:
    tokens = [7] * 4
    seen = {
        hashes_of(tokens, 4)[0],
        hashes_of(tokens, 2)[0],
        hashes_of(tokens, 4, b"a")[0],
        hashes_of(tokens, 4, b"b")[0],
    }
    assert len(seen) == 4
    # Bytes that look like tokens are still no tokens.
    assert hash_block(None, [1], (2).to_bytes(8, "little")) != hash_block(None, [1, 2])
    assert hash_block(BlockHash(bytes(32)), [1]) == hash_block(None, [1])


def test_a_hash_is_the_same_in_every_process() -> None:
    expected = hashlib.sha256(bytes(32) + b"".join(n.to_bytes(8, "little") for n in (2, 5, 9)) + b"salt").digest()
    assert hash_block(None, [5, 9], b"salt") == expected
    code = "from genericbuilders.cache import hash_block; print(hash_block(None, [5, 9], b'salt').hex())"
    told = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == expected.hex()
