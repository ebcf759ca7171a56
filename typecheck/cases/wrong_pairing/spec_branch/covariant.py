"""The platform's choice of a back end by spec has one branch wrong: windows of keys go to the states' back end.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.core import Group, Step
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.state import MAMBA2
from typecheck.designs.shared.batch import WINDOW_SPEC, two_requests


def group_for(spec: KVCacheSpec) -> Group:
    if isinstance(spec, FullAttentionSpec):
        return place(FULL, spec)[0]
    if isinstance(spec, SlidingWindowSpec):
        return place(MAMBA2, spec)[0]  # E
    if isinstance(spec, MambaSpec):
        return place(MAMBA2, spec)[0]
    raise LookupError(f"no back end for a {type(spec).__name__}")


def run() -> object:
    step = Step()
    group_for(WINDOW_SPEC).build(two_requests(), step)
    return step
