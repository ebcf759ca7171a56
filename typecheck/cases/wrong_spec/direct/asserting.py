"""The runner gives a Mamba2 builder the spec of an attention layer.

At run time: AssertionError:
"""

from __future__ import annotations

from typecheck.designs.asserting.state import Mamba2Builder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests


def run() -> object:
    builder = Mamba2Builder(FULL_SPEC, ["mixer"], CONFIG, CPU)  # E
    return builder.build(0, two_requests())
