"""A plug-in's constructor takes the layers' names before the spec; whoever makes builders passes by position.

At run time: TypeError: 'FullAttentionSpec' object is not iterable
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from genericbuilders.config import EngineConfig
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.core import BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.plugin import PagedTreeBuilder
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl


class DeviceTreeBuilder(PagedTreeBuilder):
    """Out of tree: keeps a copy of the tree on its device."""

    def __init__(
        self,
        layer_names: Sequence[str],  # E
        kv_cache_spec: KVCacheSpec,  # E?
        config: EngineConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.tree: Tensor = torch.zeros(len(layer_names), dtype=torch.int32, device=device)


DEVICE_TREE: Final = BackendAdapter("device_tree", DeviceTreeBuilder, PagedTreeImpl)


def run() -> object:
    group, _ = place(DEVICE_TREE, FULL_SPEC)
    return Runner([group]).build(two_requests())
