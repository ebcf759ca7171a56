"""The runner sizes a workspace by key-value heads, and asks a back end for them whose layers have none.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.generic.attention import FLASHINFER
from typecheck.designs.generic.core import Group
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.state import GDN
from typecheck.designs.shared.batch import STATE_SPEC, UNIFORM_SPEC


def workspace_heads(groups: Sequence[Group]) -> int:
    return sum(group.spec.num_kv_heads for group in groups if GDN.owns(group))  # E


def run() -> object:
    flashinfer, _ = place(FLASHINFER, UNIFORM_SPEC)
    gdn, _ = place(GDN, STATE_SPEC)
    return workspace_heads([flashinfer, gdn])
