"""The runner builds one Mamba2 group's metadata and moves it to a second group's blocks.

Right: the second group is bound by Mamba2 as well.
"""

from __future__ import annotations

import torch

from typecheck.designs.generic.core import Step
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, STATE_SPEC, two_requests


def run() -> object:
    first, second = (
        MAMBA2.bind(STATE_SPEC, [MAMBA2.layer(name, HEADS)], CONFIG, CPU) for name in ("mamba2.0", "mamba2.1")
    )
    step = Step()
    first.build(two_requests(), step)
    second.hold(step, second.update_block_table(first.metadata(step), torch.tensor([[7], [8]]), torch.zeros(4)))
    return second.metadata(step).state_indices.sum().item()
