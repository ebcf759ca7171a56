"""Full attention over a cache of int8, with a factor for each token and head."""

from __future__ import annotations

from collections.abc import Collection

from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.quantised_base import QuantisedBuilder, QuantisedImpl, QuantisedModes
from genericbuilders.specs import KVQuantMode

__all__ = ["INT8_KV", "Int8Builder", "Int8Impl", "Int8Modes"]

MODES = (KVQuantMode.INT8_PER_TOKEN_HEAD,)


class Int8Modes(QuantisedModes):
    """Int8, with a factor for each vector."""

    @classmethod
    @override
    def modes(cls) -> Collection[KVQuantMode]:
        return MODES


class Int8Builder(Int8Modes, QuantisedBuilder):
    """The builder."""


class Int8Impl(Int8Modes, QuantisedImpl):
    """The implementation."""


INT8_KV = BackendAdapter("int8_kv", Int8Builder, Int8Impl)
