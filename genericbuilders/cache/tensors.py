"""The memory of all caches, allocated once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from genericbuilders.adapter import Group, Layer
from genericbuilders.config import KVCacheLayout
from genericbuilders.specs import KVCacheSpec

__all__ = ["allocate_kv_caches", "num_blocks_for"]

# Bytes; as torch aligns its own tensors.
ALIGNMENT = 64


def allocate_kv_caches(groups: Sequence[Group], num_blocks: int, device: torch.device) -> Mapping[Layer, Tensor]:
    """One zeroed buffer of ``num_blocks`` pages for each layer, seen in the shape that the layer's back end states.

    Raises:
        ValueError: the shape does not fit into a page, or the layout cannot hold the padding of one.
    """
    return {layer: _allocate(group, layer, num_blocks, device) for group in groups for layer in group.layers}


def num_blocks_for(memory_bytes: int, layer_specs: Iterable[KVCacheSpec]) -> int:
    """The blocks, null block included, that each group's pool has if all caches together take ``memory_bytes`` bytes.

    Args:
        memory_bytes: bytes for all caches.
        layer_specs: one for each layer of the model.

    Raises:
        ValueError: they are too few for a null block and one more; both sizes are named.
    """
    block_bytes = sum(spec.page_size_bytes for spec in layer_specs)
    if not block_bytes:
        raise ValueError("no layer takes memory; the number of blocks does not follow from it, so choose one")
    if memory_bytes < 2 * block_bytes:
        raise ValueError(
            f"{memory_bytes} bytes are too few for caches: one block takes {block_bytes} bytes in all layers together, "
            "and 2 are needed, the null block included"
        )
    return memory_bytes // block_bytes


def _allocate(group: Group, layer: Layer, num_blocks: int, device: torch.device) -> Tensor:
    shape, dtype = group.kv_cache_shape(num_blocks), group.kv_cache_dtype()
    page, block = group.kv_cache_spec.page_size_bytes, torch.Size(shape[1:]).numel() * dtype.itemsize
    layout = layer.config.kv_cache_layout
    if block > page:
        raise ValueError(
            f"layer {layer.name!r}: a block of shape {shape[1:]} in {dtype} has {block} bytes, more than the {page} of "
            f"a page by its {type(group.kv_cache_spec).__name__}"
        )
    if page % dtype.itemsize:
        raise ValueError(f"layer {layer.name!r}: a page of {page} bytes holds no whole number of {dtype} elements")
    raw = _zeros(num_blocks * page, device).view(dtype)
    if layout is KVCacheLayout.BLOCK_FIRST:
        inner = torch.empty(shape[1:], device="meta").stride()
        return raw.as_strided(shape, (page // dtype.itemsize, *inner))
    if page != block:
        raise ValueError(
            f"layer {layer.name!r}: pages are padded from {block} to {page} bytes, which the layout {layout.value} "
            f"cannot hold; use {KVCacheLayout.BLOCK_FIRST.value}"
        )
    return raw.view(shape[1], shape[0], *shape[2:])


def _zeros(num_bytes: int, device: torch.device) -> Tensor:
    """Zeroed bytes; on a CPU the system gives each page when it is first written, so a large pool costs no time."""
    if device.type != "cpu":
        return torch.zeros(num_bytes, dtype=torch.int8, device=device)
    memory = np.zeros(num_bytes + ALIGNMENT, dtype=np.int8)
    start = -memory.ctypes.data % ALIGNMENT
    return torch.as_tensor(memory[start : start + num_bytes])
