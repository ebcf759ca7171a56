"""The runner moves a Mamba2 group's metadata by the full builder, whose group comes first.

At run time: AttributeError: 'Mamba2Metadata' object has no attribute 'seq_lens'
"""

from __future__ import annotations

import torch

from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.covariant.state import MAMBA2
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests


def run() -> object:
    full, _ = place(FULL, FULL_SPEC)
    mamba2, _ = place(MAMBA2, STATE_SPEC)
    step = Runner([full, mamba2]).build(two_requests())
    return full.update_block_table(mamba2.metadata(step), torch.tensor([[7], [8]]), torch.zeros(4)).num_kv_heads  # E
