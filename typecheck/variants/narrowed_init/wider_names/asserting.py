"""The constructor of a subclass takes its layers' names as another type than the base's.

Right: it takes any iterable of names, and so every sequence of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.attention import FullBuilder
from typecheck.designs.asserting.core import AttentionBackend, AttentionGroup
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC
from typecheck.designs.shared.kernels import FullImpl


class SortedNamesBuilder(FullBuilder):
    """Takes its layers' names from anything that yields them."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Iterable[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, sorted(layer_names), config, device)


class SortedNamesBackend(AttentionBackend):
    """Full attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "sorted_names"

    @staticmethod
    @override
    def get_builder_cls() -> type[SortedNamesBuilder]:
        return SortedNamesBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


def run() -> object:
    group = AttentionGroup(SortedNamesBackend, FULL_SPEC, ["b", "a"], CONFIG, CPU)
    return group.builder.layer_names, SortedNamesBuilder(FULL_SPEC, {"c": 1}, CONFIG, CPU).layer_names
