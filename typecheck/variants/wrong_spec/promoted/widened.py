"""The full back end is given a window's spec, or what it is promoted to, by a switch of the run.

Right: both are specs of keys and values, which is all that the builder asks for.
"""

from __future__ import annotations

from genericbuilders.specs import AttentionSpec, promote_to_full
from typecheck.designs.shared.batch import WINDOW_SPEC
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.layers import place


def spec_of(hybrid: bool) -> AttentionSpec:
    return WINDOW_SPEC if hybrid else promote_to_full(WINDOW_SPEC)


def run() -> object:
    groups = [place(FullBackend, spec_of(hybrid)) for hybrid in (True, False)]
    return [type(group.kv_cache_spec).__name__ for group in groups]
