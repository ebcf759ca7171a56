"""The plug-in's builder wants the width of the block table as well, which its own fork of the runner gives.

At run time: TypeError: TreeBuilder.__init__() missing 1 required positional argument: 'block_table_width'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from genericbuilders.config import EngineConfig
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.core import BackendAdapter, Step
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.plugin import PagedTreeBuilder
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl


class TreeBuilder(PagedTreeBuilder):
    """A tree of pages, laid out anew."""

    def __init__(  # E?
        self,  # E?
        kv_cache_spec: KVCacheSpec,  # E?
        layer_names: Sequence[str],  # E?
        config: EngineConfig,  # E?
        device: torch.device,  # E?
        block_table_width: int,  # E
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.block_table_width: int = block_table_width


TREE: Final = BackendAdapter("tree", TreeBuilder, PagedTreeImpl)


def run() -> object:
    group, layer = place(TREE, FULL_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return step[layer]
