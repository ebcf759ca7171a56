"""A plug-in states its graph support in the attribute of an earlier release, which is no longer read.

At run time: wrong: 'NEVER'; right: 'ALWAYS'
"""

from __future__ import annotations

from typing import ClassVar, Final

from typecheck.designs.generic.core import AttentionCGSupport, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.plugin import PagedTreeBuilder
from typecheck.designs.shared.batch import FULL_SPEC
from typecheck.designs.shared.kernels import PagedTreeImpl


class LegacyTreeBuilder(PagedTreeBuilder):
    """Out of tree, written when the hook was an attribute of this name."""

    cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.ALWAYS  # E


LEGACY_TREE: Final = BackendAdapter("legacy_tree", LegacyTreeBuilder, PagedTreeImpl)


def run() -> object:
    group, _ = place(LEGACY_TREE, FULL_SPEC)
    return group.cudagraph_support().name
