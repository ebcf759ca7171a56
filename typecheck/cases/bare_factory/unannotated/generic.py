"""A helper without annotations gives the class of a builder; its caller calls it with the spec of another back end.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from typecheck.designs.generic.core import Step
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests


def adapter():
    return MAMBA2


def run() -> object:
    chosen = adapter()
    group = chosen.bind(FULL_SPEC, [MAMBA2.layer("mixer", HEADS)], CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return step
