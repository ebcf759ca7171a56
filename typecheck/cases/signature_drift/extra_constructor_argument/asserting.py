"""The plug-in's builder wants the width of the block table as well, which its own fork of the runner gives.

At run time: TypeError: TreeBuilder.__init__() missing 1 required positional argument: 'block_table_width'
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.core import AttentionBackend
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.plugin import PagedTreeBuilder
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl


class TreeBuilder(PagedTreeBuilder):
    """A tree of pages, laid out anew."""

    def __init__(  # E?
        self,  # E?
        kv_cache_spec: AttentionSpec,  # E?
        layer_names: Sequence[str],  # E?
        config: EngineConfig,  # E?
        device: torch.device,  # E?
        block_table_width: int,  # E
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.block_table_width: int = block_table_width


class TreeBackend(AttentionBackend):
    """The back end that configurations call "tree"."""

    @staticmethod
    @override
    def get_name() -> str:
        return "tree"

    @staticmethod
    @override
    def get_builder_cls() -> type[TreeBuilder]:
        return TreeBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[PagedTreeImpl]:
        return PagedTreeImpl


def run() -> object:
    return place(TreeBackend, FULL_SPEC).build(two_requests())
