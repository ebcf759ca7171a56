"""A helper without annotations gives the class of a builder; its caller calls it with the spec of another back end.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.widened.state import Mamba2Builder


def builder_cls():
    return Mamba2Builder


def run() -> object:
    chosen = builder_cls()
    builder = chosen(FULL_SPEC, ["mixer"], CONFIG, CPU)  # E
    return builder.build(0, two_requests())
