"""The platform's table of back ends by spec has one row wrong: windows of keys go to the states' back end.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import Adapter, Step
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, WINDOW_SPEC, two_requests

ADAPTERS: Final[Mapping[type[KVCacheSpec], Adapter]] = {
    FullAttentionSpec: FULL,
    SlidingWindowSpec: MAMBA2,  # E
    MambaSpec: MAMBA2,
}


def run() -> object:
    step = Step()
    ADAPTERS[type(WINDOW_SPEC)].bind_any(WINDOW_SPEC, [], CONFIG, CPU).build(two_requests(), step)
    return step
