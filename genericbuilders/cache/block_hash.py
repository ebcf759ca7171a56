"""Names for blocks by what they hold, so that equal prefixes are found again."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import NewType

from genericbuilders.specs.arithmetic import require_at_least

__all__ = ["BlockHash", "BlockHashChain", "hash_block"]

BlockHash = NewType("BlockHash", bytes)
"""32 bytes that stand for a block's tokens and for all tokens before it."""

_ROOT = BlockHash(bytes(32))


def hash_block(parent: BlockHash | None, token_ids: Sequence[int], extra_key: bytes = b"") -> BlockHash:
    """The hash of one full block.

    SHA-256 over the parent's hash, the number of tokens, the tokens, and the extra key; a chain of hashes in the
    manner of a Merkle list. It depends on nothing else, so it is the same in every process and on every machine.

    Args:
        parent: hash of the block before it; ``None`` for the first.
        token_ids: the block's tokens, each within 64 signed bits.
        extra_key: what else decides the block's content, such as a salt that keeps tenants apart.
    """
    # Parent and count have fixed sizes, so that no two inputs are spelled alike.
    tokens = struct.pack(f"<q{len(token_ids)}q", len(token_ids), *token_ids)
    return BlockHash(hashlib.sha256((_ROOT if parent is None else parent) + tokens + extra_key).digest())


class BlockHashChain:
    """The hashes of one request's full blocks, computed as the request grows.

    Attributes:
        block_size: tokens in one block.
        extra_key: see `hash_block`; goes into every block.
        hashes: one for each full block so far, in order. Read only.

    Raises:
        ValueError: ``block_size`` is below 1.
    """

    def __init__(self, block_size: int, extra_key: bytes = b"") -> None:
        require_at_least(self, "block_size", block_size, 1, "tokens")
        self.block_size = block_size
        self.extra_key = extra_key
        self.hashes: list[BlockHash] = []

    def extend(self, token_ids: Sequence[int], num_tokens: int | None = None) -> Sequence[BlockHash]:
        """Hash the blocks that became full; those hashed before are not looked at again.

        Args:
            token_ids: all tokens of the request; it starts with those of earlier calls.
            num_tokens: how many of them count; ``None`` for all.

        Returns:
            The hashes of all full blocks so far.
        """
        size = self.block_size
        stop = (len(token_ids) if num_tokens is None else min(num_tokens, len(token_ids))) // size
        for index in range(len(self.hashes), stop):
            parent = self.hashes[-1] if self.hashes else None
            self.hashes.append(hash_block(parent, token_ids[index * size : (index + 1) * size], self.extra_key))
        return self.hashes
