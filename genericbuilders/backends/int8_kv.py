"""Full attention over a cache of int8, with a factor for each token and head."""

from __future__ import annotations

from collections.abc import Collection

from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.quantised_base import QuantisedBuilder, QuantisedImpl
from genericbuilders.specs import KVQuantMode

__all__ = ["INT8_KV", "Int8Builder", "Int8Impl"]

MODES = (KVQuantMode.INT8_PER_TOKEN_HEAD,)


class Int8Builder(QuantisedBuilder):
    """Int8, with a factor for each vector."""

    @classmethod
    @override
    def modes(cls) -> Collection[KVQuantMode]:
        return MODES


class Int8Impl(QuantisedImpl):
    """Int8, with a factor for each vector."""

    @classmethod
    @override
    def modes(cls) -> Collection[KVQuantMode]:
        return MODES


INT8_KV = BackendAdapter("int8_kv", Int8Builder, Int8Impl)
