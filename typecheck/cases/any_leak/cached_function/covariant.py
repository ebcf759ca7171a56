"""Groups are made once for each spec by a function under `functools.cache`, and it is called with the spec of another
back end.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from functools import cache

from genericbuilders.specs import MambaSpec
from typecheck.designs.covariant.core import Group, Step
from typecheck.designs.covariant.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests


@cache
def state_group(spec: MambaSpec) -> Group:
    return MAMBA2.bind(spec, [MAMBA2.layer("mixer", HEADS)], CONFIG, CPU)


def run() -> object:
    group = state_group(FULL_SPEC)  # E
    step = Step()
    group.build(two_requests(), step)
    return step
