"""The runner gives a Mamba2 builder the spec of an attention layer.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS


def run() -> object:
    layer = MAMBA2.layer("mixer", HEADS)
    return MAMBA2.bind(FULL_SPEC, [layer], CONFIG, CPU)  # E
