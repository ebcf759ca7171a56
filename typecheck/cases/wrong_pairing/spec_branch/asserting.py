"""The platform's choice of a back end by spec has one branch wrong: windows of keys go to the states' back end.

At run time: AssertionError:
"""

from __future__ import annotations

from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import Mamba2Backend
from typecheck.designs.shared.batch import WINDOW_SPEC, two_requests


def group_for(spec: KVCacheSpec) -> AttentionGroup:
    if isinstance(spec, FullAttentionSpec):
        return place(FullBackend, spec)
    if isinstance(spec, SlidingWindowSpec):
        return place(Mamba2Backend, spec)  # E
    if isinstance(spec, MambaSpec):
        return place(Mamba2Backend, spec)
    raise LookupError(f"no back end for a {type(spec).__name__}")


def run() -> object:
    return group_for(WINDOW_SPEC).build(two_requests())
