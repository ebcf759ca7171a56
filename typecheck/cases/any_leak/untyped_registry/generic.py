"""A module's table of back ends is typed loosely, and what is looked up in it gets the spec of another.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from typing import Any, Final

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import BackendAdapter, Step
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests

ADAPTERS: Final[dict[str, BackendAdapter[Any, Any]]] = {"full": FULL, "mamba2": MAMBA2}  # pyright: ignore[reportExplicitAny]  of any types


def run() -> object:
    group = ADAPTERS["mamba2"].bind(FULL_SPEC, [MAMBA2.layer("mixer", HEADS)], CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return step
