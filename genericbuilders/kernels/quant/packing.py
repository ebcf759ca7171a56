"""Codes of 1 to 8 bits, packed into bytes: code ``i`` takes bits ``i * bits`` and on, the lowest first."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["pack", "packed_size", "unpack"]

# So many codes fill whole bytes, whatever their bits.
RUN = 8


def packed_size(count: int, bits: int) -> int:
    """The bytes of ``count`` codes."""
    return -(-count * bits // 8)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Pack codes.

    Args:
        codes: ``[..., count]`` uint8, each below ``2 ** bits``.
        bits: of a code, 1 to 8.

    Returns:
        ``[..., packed_size(count, bits)]`` uint8; unused bits are 0.

    Raises:
        ValueError: ``bits`` is out of range.
    """
    _check(bits)
    count = codes.shape[-1]
    runs = -(-count // RUN)
    padded = torch.nn.functional.pad(codes, (0, runs * RUN - count)).view(*codes.shape[:-1], runs, RUN).long()
    # Codes share no bit, so that their sum is their union.
    words = torch.bitwise_left_shift(padded, torch.arange(RUN, device=codes.device) * bits).sum(-1)
    shifted = torch.bitwise_right_shift(words[..., None], torch.arange(bits, device=codes.device) * 8)
    return shifted.bitwise_and(255).to(torch.uint8).flatten(-2)[..., : packed_size(count, bits)]


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """The codes that `pack` packed.

    Args:
        packed: ``[..., packed_size(count, bits)]`` uint8.
        bits: of a code, 1 to 8.
        count: codes.

    Returns:
        ``[..., count]`` uint8.

    Raises:
        ValueError: ``bits`` is out of range, or there are more or fewer bytes.
    """
    _check(bits)
    if packed.shape[-1] != packed_size(count, bits):
        raise ValueError(
            f"{count} codes of {bits} bits take {packed_size(count, bits)} bytes, but {packed.shape[-1]} were given"
        )
    runs = -(-count // RUN)
    padded = torch.nn.functional.pad(packed, (0, runs * bits - packed.shape[-1]))
    padded = padded.view(*packed.shape[:-1], runs, bits).long()
    words = torch.bitwise_left_shift(padded, torch.arange(bits, device=packed.device) * 8).sum(-1)
    shifted = torch.bitwise_right_shift(words[..., None], torch.arange(RUN, device=packed.device) * bits)
    return shifted.bitwise_and(2**bits - 1).to(torch.uint8).flatten(-2)[..., :count]


def _check(bits: int) -> None:
    if not 1 <= bits <= 8:
        raise ValueError(f"codes have 1 to 8 bits, not {bits}")
