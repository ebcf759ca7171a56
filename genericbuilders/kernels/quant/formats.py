"""Which bytes of a slot hold what, for each mode: a slot is one token's key and value in one key-value head.

| mode | key | value |
|---|---|---|
| ``FP8_PER_TENSOR`` | float8 e4m3 | float8 e4m3 |
| ``FP8_PER_TOKEN_HEAD`` | float8 e4m3, float32 factor | the same |
| ``INT8_PER_TOKEN_HEAD`` | int8, float32 factor | the same |
| ``TURBOQUANT_K8V4`` | float8 e4m3 | turned, 4 bits, float32 factor |
| ``TURBOQUANT_4BIT_NC`` | turned, 4 bits, float16 factor | turned, 4 bits, float32 factor |
| ``TURBOQUANT_K3V4_NC`` | turned, 3 bits, float16 factor | turned, 4 bits, float32 factor |
| ``TURBOQUANT_3BIT_NC`` | turned, 3 bits, float16 factor | turned, 3 bits, float32 factor |
| ``TURBOQUANT_2BIT_NC`` | turned, 2 bits, float16 factor | turned, 2 bits, float32 factor |

Elements come first and their factor behind them, the key before the value; a slot has an even number of bytes. The
sizes of turned modes are vLLM's where it has the mode, so that a spec made there states the same bytes; what the bytes
mean is this library's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from genericbuilders.kernels.quant.packing import packed_size
from genericbuilders.specs import KVQuantMode, round_up

__all__ = ["FORMATS", "Coding", "SlotFormat", "VectorFormat", "format_of_width", "slot_format"]

MIN_TURNED_SIZE = 16
"""Coordinates of shorter vectors look nothing like draws from a normal, however they are turned."""


class Coding(Enum):
    """What an element of a vector becomes."""

    FLOAT8 = "float8 e4m3"
    INT8 = "int8"
    LLOYD_MAX = "the code of a level, after a random rotation"


@dataclass(frozen=True)
class VectorFormat:
    """A vector as bytes.

    Attributes:
        coding: what its elements become.
        bits: of an element.
        factor_bytes: of the vector's own factor, by which its elements are multiplied: 4 (float32), 2 (float16), or 0
            for none.
    """

    coding: Coding
    bits: int
    factor_bytes: int

    def num_bytes(self, size: int) -> int:
        """The bytes of a vector of ``size`` elements."""
        return packed_size(size, self.bits) + self.factor_bytes


def _turned(bits: int, factor_bytes: int) -> VectorFormat:
    return VectorFormat(Coding.LLOYD_MAX, bits, factor_bytes)


FORMATS: Mapping[KVQuantMode, tuple[VectorFormat, VectorFormat]] = {
    KVQuantMode.FP8_PER_TENSOR: (VectorFormat(Coding.FLOAT8, 8, 0), VectorFormat(Coding.FLOAT8, 8, 0)),
    KVQuantMode.FP8_PER_TOKEN_HEAD: (VectorFormat(Coding.FLOAT8, 8, 4), VectorFormat(Coding.FLOAT8, 8, 4)),
    KVQuantMode.INT8_PER_TOKEN_HEAD: (VectorFormat(Coding.INT8, 8, 4), VectorFormat(Coding.INT8, 8, 4)),
    KVQuantMode.TURBOQUANT_K8V4: (VectorFormat(Coding.FLOAT8, 8, 0), _turned(4, 4)),
    KVQuantMode.TURBOQUANT_4BIT_NC: (_turned(4, 2), _turned(4, 4)),
    KVQuantMode.TURBOQUANT_K3V4_NC: (_turned(3, 2), _turned(4, 4)),
    KVQuantMode.TURBOQUANT_3BIT_NC: (_turned(3, 2), _turned(3, 4)),
    KVQuantMode.TURBOQUANT_2BIT_NC: (_turned(2, 2), _turned(2, 4)),
}
"""The formats of a key and of a value, by mode."""


@dataclass(frozen=True)
class SlotFormat:
    """A slot of one mode and head size; made by `slot_format`.

    Attributes:
        mode: the mode.
        head_size: elements of a key, and of a value.
        key: how a key is stored.
        value: how a value is stored.
    """

    mode: KVQuantMode
    head_size: int
    key: VectorFormat
    value: VectorFormat

    @property
    def key_bytes(self) -> int:
        """The bytes of a key, the first ones of a slot."""
        return self.key.num_bytes(self.head_size)

    @property
    def value_bytes(self) -> int:
        """The bytes of a value, behind the key."""
        return self.value.num_bytes(self.head_size)

    @property
    def slot_bytes(self) -> int:
        """The bytes of a slot; an even number."""
        return round_up(self.key_bytes + self.value_bytes, 2)


def slot_format(mode: KVQuantMode, head_size: int) -> SlotFormat:
    """The slot of a mode.

    Raises:
        ValueError: the mode is not served, or it lacks the head size; both are named.
    """
    vectors = FORMATS.get(mode)
    if vectors is None:
        raise ValueError(f"caches are not quantised in mode {mode.name} ({mode.value}); there are {_told(FORMATS)}")
    turned = any(vector.coding is Coding.LLOYD_MAX for vector in vectors)
    if turned and head_size < MIN_TURNED_SIZE:
        raise ValueError(
            f"mode {mode.name} has no head size {head_size}: it takes {MIN_TURNED_SIZE} and more; "
            f"{KVQuantMode.INT8_PER_TOKEN_HEAD.name} takes any"
        )
    if head_size < 1:
        raise ValueError(f"mode {mode.name} has no head size {head_size}; it must be at least 1")
    return SlotFormat(mode, head_size, *vectors)


def format_of_width(modes: Collection[KVQuantMode], head_size: int, slot_bytes: int) -> SlotFormat:
    """The one format among ``modes`` whose slots have ``slot_bytes`` bytes.

    Modes of one back end differ in that for every head size, so that a layer knows from its cache how to read it.

    Raises:
        ValueError: none has; the sizes are named.
    """
    formats = [slot_format(mode, head_size) for mode in modes]
    for each in formats:
        if each.slot_bytes == slot_bytes:
            return each
    there = ", ".join(f"{each.mode.name} {each.slot_bytes}" for each in formats)
    raise ValueError(f"slots of the cache have {slot_bytes} bytes; for head size {head_size} there are: {there}")


def _told(modes: Collection[KVQuantMode]) -> str:
    return ", ".join(f"{mode.name} ({mode.value})" for mode in modes)
