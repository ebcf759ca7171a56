"""Names for blocks by what they hold, so that equal prefixes are found again."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import NewType

__all__ = ["BlockHash", "extend_block_hashes", "hash_block"]

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


def extend_block_hashes(
    hashes: list[BlockHash], token_ids: Sequence[int], block_size: int, extra_key: bytes = b""
) -> None:
    """Hash the blocks of a request that became full, and add them to those in ``hashes``.

    Blocks that are hashed already are not looked at again, so a request costs each token once.

    Args:
        hashes: one for each full block so far, in order; all by the same ``block_size`` and ``extra_key``.
        token_ids: all tokens of the request; it starts with those of earlier calls.
        block_size: tokens in one block.
        extra_key: see `hash_block`; goes into every block.
    """
    for index in range(len(hashes), len(token_ids) // block_size):
        tokens = token_ids[index * block_size : (index + 1) * block_size]
        hashes.append(hash_block(hashes[-1] if hashes else None, tokens, extra_key))
