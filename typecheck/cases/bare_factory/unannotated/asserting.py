"""A helper without annotations gives the class of a builder; its caller calls it with the spec of another back end.

At run time: AssertionError:
"""

from __future__ import annotations

from typecheck.designs.asserting.state import Mamba2Builder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests


def builder_cls():
    return Mamba2Builder


def run() -> object:
    chosen = builder_cls()
    builder = chosen(FULL_SPEC, ["mixer"], CONFIG, CPU)  # E
    return builder.build(0, two_requests())
