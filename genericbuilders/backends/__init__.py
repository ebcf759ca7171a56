"""Back ends, one module each: metadata, builder, implementation and the adapter that ties them."""

from __future__ import annotations

from genericbuilders.adapter import Adapter
from genericbuilders.backends.flash_attn import FLASH_ATTN

__all__ = ["BUILT_IN"]

BUILT_IN: tuple[Adapter, ...] = (FLASH_ATTN,)
