"""Full attention over a cache of float8 (e4m3): one factor for the whole cache, or one for each token and head."""

from __future__ import annotations

from collections.abc import Collection

from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.quantised_base import QuantisedBuilder, QuantisedImpl, QuantisedModes
from genericbuilders.specs import KVQuantMode

__all__ = ["FP8_KV", "Fp8Builder", "Fp8Impl", "Fp8Modes"]

MODES = (KVQuantMode.FP8_PER_TENSOR, KVQuantMode.FP8_PER_TOKEN_HEAD)


class Fp8Modes(QuantisedModes):
    """Float8 e4m3, with one factor for all or with one for each vector."""

    @classmethod
    @override
    def modes(cls) -> Collection[KVQuantMode]:
        return MODES


class Fp8Builder(Fp8Modes, QuantisedBuilder):
    """The builder."""


class Fp8Impl(Fp8Modes, QuantisedImpl):
    """The implementation."""


FP8_KV = BackendAdapter("fp8_kv", Fp8Builder, Fp8Impl)
