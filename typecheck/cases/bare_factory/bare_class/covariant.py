"""A function looks a builder up and says only that it is one; its caller gives it the spec of another back end.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from typecheck.designs.covariant.core import Adapter, Step
from typecheck.designs.covariant.state import GDN, MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests


def adapter_for(chunked: bool) -> Adapter:
    return MAMBA2 if chunked else GDN


def run() -> object:
    group = adapter_for(chunked=True).bind_any(FULL_SPEC, [MAMBA2.layer("mixer", HEADS)], CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return step
