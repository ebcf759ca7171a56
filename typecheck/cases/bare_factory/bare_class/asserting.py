"""A function looks a builder up and says only that it is one; its caller gives it the spec of another back end.

At run time: AssertionError:
"""

from __future__ import annotations

from typecheck.designs.asserting.core import AnyBuilder
from typecheck.designs.asserting.state import GDNBuilder, Mamba2Builder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests


def builder_cls(chunked: bool) -> type[AnyBuilder]:
    return Mamba2Builder if chunked else GDNBuilder


def run() -> object:
    builder = builder_cls(chunked=True)(FULL_SPEC, ["mixer"], CONFIG, CPU)  # E
    made: object = builder.build(0, two_requests())  # pyright: ignore[reportAny]  whatever it makes
    return made
