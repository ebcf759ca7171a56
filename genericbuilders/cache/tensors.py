"""The memory of all caches, allocated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from genericbuilders.adapter import Group, Layer
from genericbuilders.config import KVCacheLayout

__all__ = ["allocate_kv_caches"]


def allocate_kv_caches(groups: Sequence[Group], num_blocks: int, device: torch.device) -> Mapping[Layer, Tensor]:
    """One zeroed buffer of ``num_blocks`` pages for each layer, seen in the shape that the layer's back end states.

    Raises:
        ValueError: the shape does not fit into a page, or the layout cannot hold the padding of one.
    """
    return {layer: _allocate(group, layer, num_blocks, device) for group in groups for layer in group.layers}


def _allocate(group: Group, layer: Layer, num_blocks: int, device: torch.device) -> Tensor:
    shape, dtype = group.kv_cache_shape(num_blocks), group.kv_cache_dtype()
    page = group.kv_cache_spec.page_size_bytes
    block_elements = torch.Size(shape[1:]).numel()
    elements = page // dtype.itemsize
    if block_elements * dtype.itemsize > page:
        raise ValueError(
            f"layer {layer.name!r}: a block of shape {shape[1:]} in {dtype} has {block_elements * dtype.itemsize} bytes, more than "
            f"the {page} of a page by its {type(group.kv_cache_spec).__name__}"
        )
    raw = torch.zeros(num_blocks * page, dtype=torch.int8, device=device).view(dtype)
    if layer.config.kv_cache_layout is KVCacheLayout.BLOCK_FIRST:
        inner = torch.empty(shape[1:], device="meta").stride()
        return raw.as_strided(shape, (elements, *inner))
    if elements != block_elements:
        raise ValueError(
            f"layer {layer.name!r}: pages are padded from {block_elements * dtype.itemsize} to {page} bytes, which the layout "
            f"{layer.config.kv_cache_layout.value} cannot hold; use {KVCacheLayout.BLOCK_FIRST.value}"
        )
    return raw.view(shape[1], shape[0], *shape[2:])
