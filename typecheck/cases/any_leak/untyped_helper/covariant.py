"""A helper without a return type makes the draft layer's attention spec, and it goes to a builder over states.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from dataclasses import replace

from typecheck.designs.covariant.core import Step
from typecheck.designs.covariant.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, WINDOW_SPEC, two_requests


def draft_spec(window: int):
    return replace(WINDOW_SPEC, sliding_window=window)


def run() -> object:
    group = MAMBA2.bind(draft_spec(4), [MAMBA2.layer("draft", HEADS)], CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return group.metadata(step)
