"""The runner chooses a back end by a chain of `isinstance` over specs that derive from each other.

Right: the narrowest comes first, so that every branch is reached.
"""

from __future__ import annotations

from genericbuilders.specs import AttentionSpec, KVCacheSpec, MambaSpec, MLAAttentionSpec
from typecheck.designs.generic.attention import FULL, MLA
from typecheck.designs.generic.core import Group
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.state import LINEAR
from typecheck.designs.shared.batch import MLA_SPEC, STATE_SPEC, WINDOW_SPEC


def choose(spec: KVCacheSpec) -> Group:
    if isinstance(spec, MLAAttentionSpec):
        return place(MLA, spec)[0]
    if isinstance(spec, AttentionSpec):
        return place(FULL, spec)[0]
    if isinstance(spec, MambaSpec):
        return place(LINEAR, spec)[0]
    raise LookupError(f"no back end for a {type(spec).__name__}")


def run() -> object:
    return [choose(spec).adapter.name for spec in (MLA_SPEC, WINDOW_SPEC, STATE_SPEC)]
