"""A module's table of back ends is typed loosely, and what is looked up in it gets the spec of another.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from typing import Final

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AnyBuilder
from typecheck.designs.widened.state import Mamba2Builder

BUILDERS: Final[dict[str, type[AnyBuilder]]] = {"full": FullBuilder, "mamba2": Mamba2Builder}


def run() -> object:
    builder = BUILDERS["mamba2"](FULL_SPEC, ["mixer"], CONFIG, CPU)  # E
    return {"mixer": builder.build(0, two_requests())}
