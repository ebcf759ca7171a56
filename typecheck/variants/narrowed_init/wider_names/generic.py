"""The constructor of a subclass takes its layers' names as another type than the base's.

Right: it takes any iterable of names, and so every sequence of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec
from typecheck.designs.generic.attention import FullBuilder
from typecheck.designs.generic.core import BackendAdapter
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS
from typecheck.designs.shared.kernels import FullImpl


class SortedNamesBuilder(FullBuilder):
    """Takes its layers' names from anything that yields them."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Iterable[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, sorted(layer_names), config, device)


SORTED_NAMES: Final = BackendAdapter("sorted_names", SortedNamesBuilder, FullImpl)


def run() -> object:
    layers = [SORTED_NAMES.layer(name, HEADS) for name in ("b", "a")]
    group = SORTED_NAMES.bind(FULL_SPEC, layers, CONFIG, CPU)
    return group.builder.layer_names, SortedNamesBuilder(FULL_SPEC, {"c": 1}, CONFIG, CPU).layer_names
