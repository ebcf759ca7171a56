"""The platform's table of back ends by spec has one row wrong: windows of keys go to the states' back end.

At run time: AssertionError:
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionBackend
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import Mamba2Backend
from typecheck.designs.shared.batch import WINDOW_SPEC, two_requests

BACKENDS: Final[Mapping[type[KVCacheSpec], type[AttentionBackend]]] = {
    FullAttentionSpec: FullBackend,
    SlidingWindowSpec: Mamba2Backend,  # E
    MambaSpec: Mamba2Backend,
}


def run() -> object:
    return place(BACKENDS[type(WINDOW_SPEC)], WINDOW_SPEC).build(two_requests())
