"""Settings and device are filled in once with `functools.partial`, and the spec that is given later is another back
end's.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from functools import partial

from typecheck.designs.generic.core import Step
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests


def run() -> object:
    make = partial(MAMBA2.bind, layers=[MAMBA2.layer("mixer", HEADS)], config=CONFIG, device=CPU)
    group = make(FULL_SPEC)  # E
    step = Step()
    group.build(two_requests(), step)
    return group.metadata(step)
