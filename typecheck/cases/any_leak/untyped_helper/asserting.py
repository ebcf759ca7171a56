"""A helper without a return type makes the draft layer's attention spec, and it goes to a builder over states.

At run time: AssertionError:
"""

from __future__ import annotations

from dataclasses import replace

from typecheck.designs.asserting.state import Mamba2Builder
from typecheck.designs.shared.batch import CONFIG, CPU, WINDOW_SPEC, two_requests


def draft_spec(window: int):
    return replace(WINDOW_SPEC, sliding_window=window)


def run() -> object:
    builder = Mamba2Builder(draft_spec(4), ["draft"], CONFIG, CPU)  # E
    return builder.build(0, two_requests())
