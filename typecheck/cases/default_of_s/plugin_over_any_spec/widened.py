"""The runner counts the heads of the plug-in's groups; the plug-in takes any spec, and here it was given a state's.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.shared.batch import MLA_SPEC, STATE_SPEC
from typecheck.designs.widened.attention import MLABackend
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.plugin import PagedTreeBackend, PagedTreeBuilder


def tree_heads(groups: Sequence[AttentionGroup]) -> int:
    heads: list[int] = []
    for group in groups:
        builder = group.builder
        if isinstance(builder, PagedTreeBuilder):
            heads.append(builder.kv_cache_spec.num_kv_heads)  # E
    return sum(heads)


def run() -> object:
    return tree_heads([place(MLABackend, MLA_SPEC), place(PagedTreeBackend, STATE_SPEC)])
