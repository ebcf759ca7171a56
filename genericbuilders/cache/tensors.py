"""The memory of all caches, allocated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from genericbuilders.adapter import Group, Layer
from genericbuilders.config import KVCacheLayout

__all__ = ["allocate_kv_caches", "allocate_shared_kv_caches", "copy_blocks", "with_sharing_layers", "zero_blocks"]

# Bytes; as torch aligns its own tensors.
ALIGNMENT = 64


def allocate_kv_caches(
    groups: Sequence[Group], num_blocks: int | Sequence[int], device: torch.device
) -> Mapping[Layer, Tensor]:
    """One zeroed buffer of pages for each layer with a cache of its own, in the shape that its back end states.

    Args:
        groups: the layers.
        num_blocks: blocks in each group's pool; one number if all have the same.
        device: where the buffers live.

    Raises:
        ValueError: there are not as many numbers as groups, the shape does not fit into a page, or the layout cannot
            hold the padding of one.
    """
    counts = [num_blocks] * len(groups) if isinstance(num_blocks, int) else num_blocks
    if len(counts) != len(groups):
        raise ValueError(
            f"{len(counts)} numbers of blocks were given for {len(groups)} groups; each group needs its own"
        )
    return {
        layer: _view(_zeros(count * group.kv_cache_spec.page_size_bytes, device), group, layer, count)
        for group, count in zip(groups, counts, strict=True)
        for layer in group.stored_layers
    }


def allocate_shared_kv_caches(
    groups: Sequence[Group], num_blocks: int, page_bytes: int, device: torch.device
) -> Mapping[Layer, Tensor]:
    """Zeroed buffers for groups that share one pool: the first layers of all groups lie in one, and so on.

    A block belongs to one group at a time. Clear it (`zero_blocks`) when a group takes it: pages of another one may be
    left in it.

    Args:
        groups: the layers.
        num_blocks: blocks in the pool.
        page_bytes: bytes from one page to the next, in every layer.
        device: where the buffers live.

    Raises:
        ValueError: a shape does not fit into a page, or a layout cannot hold the padding of one.
    """
    most = max(len(group.stored_layers) for group in groups)
    buffers = [_zeros(num_blocks * page_bytes, device) for _ in range(most)]
    return {
        layer: _view(buffer, group, layer, num_blocks)
        for group in groups
        for layer, buffer in zip(group.stored_layers, buffers, strict=False)
    }


def with_sharing_layers(kv_caches: Mapping[Layer, Tensor], groups: Sequence[Group]) -> Mapping[Layer, Tensor]:
    """The same memory, also under each layer of ``groups`` that shares another's cache."""
    return {**kv_caches, **{layer: kv_caches[layer.cache_owner] for group in groups for layer in group.layers}}


def zero_blocks(group: Group, kv_caches: Mapping[Layer, Tensor], block_ids: Sequence[int]) -> None:
    """Clear blocks in all of a group's layers, each by its own page size and layout."""
    for layer in group.stored_layers:
        pages = _by_block(layer, kv_caches[layer])
        pages[torch.tensor(block_ids, dtype=torch.int64, device=pages.device)] = 0


def copy_blocks(
    group: Group, kv_caches: Mapping[Layer, Tensor], sources: Sequence[int], targets: Sequence[int]
) -> None:
    """Copy blocks to others in all of a group's layers, each by its own page size and layout.

    All are read before any is written.

    Raises:
        ValueError: there are not as many sources as targets.
    """
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} blocks cannot be copied to {len(targets)}; give a target for each")
    for layer in group.stored_layers:
        pages = _by_block(layer, kv_caches[layer])
        at = torch.tensor([sources, targets], dtype=torch.int64, device=pages.device)
        pages[at[1]] = pages[at[0]]


def _by_block(layer: Layer, cache: Tensor) -> Tensor:
    return cache if layer.config.kv_cache_layout is KVCacheLayout.BLOCK_FIRST else cache.transpose(0, 1)


def _view(raw: Tensor, group: Group, layer: Layer, num_blocks: int) -> Tensor:
    """A layer's buffer of bytes in the shape and type of its back end."""
    shape, dtype = group.kv_cache_shape(num_blocks), group.kv_cache_dtype()
    page, block = len(raw) // num_blocks, torch.Size(shape[1:]).numel() * dtype.itemsize
    layout = layer.config.kv_cache_layout
    if block > page:
        raise ValueError(
            f"layer {layer.name!r}: a block of shape {shape[1:]} in {dtype} has {block} bytes, more than the {page} of "
            f"a page by its {type(group.kv_cache_spec).__name__}"
        )
    if page % dtype.itemsize:
        raise ValueError(f"layer {layer.name!r}: a page of {page} bytes holds no whole number of {dtype} elements")
    typed = raw.view(dtype)
    if layout is KVCacheLayout.BLOCK_FIRST:
        inner = torch.empty(shape[1:], device="meta").stride()
        return typed.as_strided(shape, (page // dtype.itemsize, *inner))
    if page != block:
        raise ValueError(
            f"layer {layer.name!r}: pages are padded from {block} to {page} bytes, which the layout {layout.value} "
            f"cannot hold; use {KVCacheLayout.BLOCK_FIRST.value}"
        )
    return typed.view(shape[1], shape[0], *shape[2:])


def _zeros(num_bytes: int, device: torch.device) -> Tensor:
    """Zeroed bytes; on a CPU the system gives each page when it is first written, so a large pool costs no time."""
    if device.type != "cpu":
        return torch.zeros(num_bytes, dtype=torch.int8, device=device)
    memory = np.zeros(num_bytes + ALIGNMENT, dtype=np.int8)
    start = -memory.ctypes.data % ALIGNMENT
    return torch.as_tensor(memory[start : start + num_bytes])
