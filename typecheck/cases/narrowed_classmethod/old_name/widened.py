"""A plug-in states its graph support in the attribute of an earlier release, which is no longer read.

At run time: wrong: 'NEVER'; right: 'ALWAYS'
"""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from typecheck.designs.shared.batch import FULL_SPEC
from typecheck.designs.widened.core import AttentionCGSupport
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.plugin import PagedTreeBackend, PagedTreeBuilder


class LegacyTreeBuilder(PagedTreeBuilder):
    """Out of tree, written when the hook was an attribute of this name."""

    cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.ALWAYS  # E


class LegacyTreeBackend(PagedTreeBackend):
    """Out of tree."""

    @staticmethod
    @override
    def get_builder_cls() -> type[LegacyTreeBuilder]:
        return LegacyTreeBuilder


def run() -> object:
    return place(LegacyTreeBackend, FULL_SPEC).cudagraph_support().name
