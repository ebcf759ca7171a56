"""The runner counts the heads of the plug-in's groups; the plug-in takes any spec, and here it was given a state's.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.covariant.attention import MLA
from typecheck.designs.covariant.core import Group
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.plugin import PAGED_TREE
from typecheck.designs.shared.batch import MLA_SPEC, STATE_SPEC


def tree_heads(groups: Sequence[Group]) -> int:
    return sum(group.spec.num_kv_heads for group in groups if PAGED_TREE.owns(group))  # E


def run() -> object:
    mla, _ = place(MLA, MLA_SPEC)
    tree, _ = place(PAGED_TREE, STATE_SPEC)
    return tree_heads([mla, tree])
