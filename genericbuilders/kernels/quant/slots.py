"""Keys and values as the slots of a paged cache."""

from __future__ import annotations

import torch
from torch import Tensor

from genericbuilders.kernels.quant.codecs import VectorCodec, make_codec
from genericbuilders.kernels.quant.formats import SlotFormat
from genericbuilders.kernels.validation import check_slots

__all__ = ["SlotCodec", "read_pages", "write_slots"]


class SlotCodec:
    """The codecs of a slot's key and value.

    Args:
        slot: which bytes hold what.
        device: where the cache is.
        key_factor: what all keys are divided by, where they have no factors of their own.
        value_factor: the same for values.

    Raises:
        ValueError: a factor is not positive.
    """

    def __init__(
        self, slot: SlotFormat, device: torch.device, key_factor: float = 1.0, value_factor: float = 1.0
    ) -> None:
        self.slot = slot
        self.device = device
        self.key: VectorCodec = make_codec(slot.head_size, slot.key, device, key_factor)
        self.value: VectorCodec = make_codec(slot.head_size, slot.value, device, value_factor)

    def encode(self, key: Tensor, value: Tensor) -> Tensor:
        """``[..., slot_bytes]`` uint8 from keys and values ``[..., head_size]``."""
        packed = torch.cat((self.key.encode(key), self.value.encode(value)), -1)
        return torch.nn.functional.pad(packed, (0, self.slot.slot_bytes - packed.shape[-1]))

    def decode(self, slots: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values ``[..., head_size]`` of ``dtype`` (float32 or float64) from slots."""
        return self.key.decode(self._key_bytes(slots), dtype), self.value.decode(self._value_bytes(slots), dtype)

    def unpack_keys(self, slots: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `VectorCodec.unpack`; for queries turned by `turn_query`."""
        return self.key.unpack(self._key_bytes(slots))

    def unpack_values(self, slots: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `VectorCodec.unpack`; sums of them are turned back by `turn_back`."""
        return self.value.unpack(self._value_bytes(slots))

    def turn_query(self, query: Tensor) -> Tensor:
        """See `VectorCodec.turn`."""
        return self.key.turn(query)

    def turn_back(self, attended: Tensor) -> Tensor:
        """See `VectorCodec.turn_back`."""
        return self.value.turn_back(attended)

    def _key_bytes(self, slots: Tensor) -> Tensor:
        return slots[..., : self.slot.key_bytes]

    def _value_bytes(self, slots: Tensor) -> Tensor:
        return slots[..., self.slot.key_bytes : self.slot.key_bytes + self.slot.value_bytes]


def write_slots(key: Tensor, value: Tensor, cache: Tensor, slot_mapping: Tensor, codec: SlotCodec) -> None:
    """Quantise and store; see `genericbuilders.kernels.quant.protocols.WriteSlots`.

    Raises:
        ValueError: keys and values are not of the cache's heads and the codec's size, ``slot_mapping`` is shorter than
            the keys, or, on a CPU, names a slot that the cache does not have; nothing is written.
    """
    num_tokens, block_size = key.shape[0], cache.shape[2]
    if key.shape[1:] != (cache.shape[1], codec.slot.head_size) or value.shape != key.shape:
        raise ValueError(
            f"key is {tuple(key.shape)} and value {tuple(value.shape)}; the cache has {cache.shape[1]} key-value heads "
            f"of size {codec.slot.head_size}"
        )
    if slot_mapping.shape[0] < num_tokens:
        raise ValueError(f"slot_mapping has {slot_mapping.shape[0]} entries for {num_tokens} tokens")
    slots = slot_mapping[:num_tokens]
    check_slots(slots, cache.shape[0] * block_size)
    if slots.is_cuda:
        # The shape must not depend on the data under a CUDA graph. Unwritten tokens go to the null block, which nobody
        # reads.
        slots = slots.clamp(min=0)
    else:
        written = slots >= 0
        key, value, slots = key[written], value[written], slots[written]
    block, offset = torch.div(slots, block_size, rounding_mode="floor"), slots % block_size
    cache[block, :, offset] = codec.encode(key, value)


def read_pages(cache: Tensor, codec: SlotCodec, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """All keys and values of a cache, as kernels over plain caches take them.

    Args:
        cache: ``[num_blocks, num_kv_heads, block_size, slot_bytes]`` uint8.
        codec: of the cache.
        dtype: float32 or float64.

    Returns:
        Keys and values, ``[num_blocks, block_size, num_kv_heads, head_size]`` each.
    """
    keys, values = codec.decode(cache, dtype)
    return keys.transpose(1, 2), values.transpose(1, 2)
