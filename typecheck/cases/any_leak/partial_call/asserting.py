"""Settings and device are filled in once with `functools.partial`, and the spec that is given later is another back
end's.

At run time: AssertionError:
"""

from __future__ import annotations

from functools import partial

from typecheck.designs.asserting.state import Mamba2Builder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests


def run() -> object:
    make = partial(Mamba2Builder, layer_names=["mixer"], config=CONFIG, device=CPU)
    builder = make(FULL_SPEC)  # E
    return builder.build(0, two_requests())
