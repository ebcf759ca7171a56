"""The runner chooses a back end by a chain of `isinstance` over specs that derive from each other.

Right: the narrowest comes first, so that every branch is reached.
"""

from __future__ import annotations

from genericbuilders.specs import AttentionSpec, KVCacheSpec, MambaSpec, MLAAttentionSpec
from typecheck.designs.shared.batch import MLA_SPEC, STATE_SPEC, WINDOW_SPEC
from typecheck.designs.widened.attention import FullBackend, MLABackend
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.state import LinearBackend


def choose(spec: KVCacheSpec) -> AttentionGroup:
    if isinstance(spec, MLAAttentionSpec):
        return place(MLABackend, spec)
    if isinstance(spec, AttentionSpec):
        return place(FullBackend, spec)
    if isinstance(spec, MambaSpec):
        return place(LinearBackend, spec)
    raise LookupError(f"no back end for a {type(spec).__name__}")


def run() -> object:
    return [choose(spec).backend.get_name() for spec in (MLA_SPEC, WINDOW_SPEC, STATE_SPEC)]
