"""Which back end serves a quantised cache, by its mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends import fp8_kv, int8_kv, turboquant
from genericbuilders.backends.flash_attn import FlashAttentionMetadata
from genericbuilders.specs import FullAttentionSpec, KVQuantMode

__all__ = ["QUANTISED", "QuantisedAdapter", "quantised_backend"]

QuantisedAdapter: TypeAlias = BackendAdapter[FlashAttentionMetadata, FullAttentionSpec]
"""A back end over quantised caches. Its metadata is `FLASH_ATTN`'s, so that its layers stand where that one's did."""

QUANTISED: tuple[QuantisedAdapter, ...] = (fp8_kv.FP8_KV, int8_kv.INT8_KV, turboquant.TURBOQUANT)
"""All back ends over quantised caches."""

_BY_MODE: Mapping[KVQuantMode, QuantisedAdapter] = {
    **dict.fromkeys(fp8_kv.MODES, fp8_kv.FP8_KV),
    **dict.fromkeys(int8_kv.MODES, int8_kv.INT8_KV),
    **dict.fromkeys(turboquant.MODES, turboquant.TURBOQUANT),
}


def quantised_backend(mode: KVQuantMode) -> QuantisedAdapter:
    """The back end that serves a mode.

    Raises:
        ValueError: none does; the mode is named, and those that are served.
    """
    adapter = _BY_MODE.get(mode)
    if adapter is None:
        served = ", ".join(each.name for each in _BY_MODE)
        raise ValueError(f"no back end has caches in mode {mode.name} ({mode.value}); served are {served}")
    return adapter
