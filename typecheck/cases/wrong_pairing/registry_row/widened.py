"""The platform's table of back ends by spec has one row wrong: windows of keys go to the states' back end.

At run time: AttributeError: 'SlidingWindowSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from typecheck.designs.shared.batch import WINDOW_SPEC, two_requests
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.core import AttentionBackend
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.state import Mamba2Backend

BACKENDS: Final[Mapping[type[KVCacheSpec], type[AttentionBackend]]] = {
    FullAttentionSpec: FullBackend,
    SlidingWindowSpec: Mamba2Backend,  # E
    MambaSpec: Mamba2Backend,
}


def run() -> object:
    return place(BACKENDS[type(WINDOW_SPEC)], WINDOW_SPEC).build(two_requests())
