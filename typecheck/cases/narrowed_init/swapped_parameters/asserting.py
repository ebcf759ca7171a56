"""A plug-in's constructor takes the layers' names before the spec; whoever makes builders passes by position.

At run time: TypeError: 'FullAttentionSpec' object is not iterable
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.plugin import PagedTreeBackend, PagedTreeBuilder
from typecheck.designs.shared.batch import FULL_SPEC, two_requests


class DeviceTreeBuilder(PagedTreeBuilder):
    """Out of tree: keeps a copy of the tree on its device."""

    def __init__(
        self,
        layer_names: Sequence[str],  # E
        kv_cache_spec: AttentionSpec,  # E?
        config: EngineConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.tree: Tensor = torch.zeros(len(layer_names), dtype=torch.int32, device=device)


class DeviceTreeBackend(PagedTreeBackend):
    """Out of tree."""

    @staticmethod
    @override
    def get_builder_cls() -> type[DeviceTreeBuilder]:
        return DeviceTreeBuilder


def run() -> object:
    return place(DeviceTreeBackend, FULL_SPEC).build(two_requests())
