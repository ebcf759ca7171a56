"""The runner builds one Mamba2 group's metadata and moves it to a second group's blocks.

Right: the second group is bound by Mamba2 as well.
"""

from __future__ import annotations

import torch

from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.state import Mamba2Backend, Mamba2Builder


def run() -> object:
    groups = [AttentionGroup(Mamba2Backend, STATE_SPEC, [name], CONFIG, CPU) for name in ("mamba2.0", "mamba2.1")]
    built = groups[0].build(two_requests())["mamba2.0"]
    builder = groups[1].builder
    assert isinstance(builder, Mamba2Builder)
    assert isinstance(built, Mamba2Metadata)
    moved = builder.update_block_table(built, torch.tensor([[7], [8]]), torch.zeros(4))
    return moved.state_indices.sum().item()
