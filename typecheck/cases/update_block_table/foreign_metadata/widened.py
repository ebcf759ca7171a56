"""The runner moves a Mamba2 group's metadata by the full builder, whose group comes first.

At run time: AttributeError: 'Mamba2Metadata' object has no attribute 'seq_lens'
"""

from __future__ import annotations

import torch

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.state import Mamba2Backend


def run() -> object:
    full = FullBuilder(FULL_SPEC, ["full"], CONFIG, CPU)
    mamba2 = AttentionGroup(Mamba2Backend, STATE_SPEC, ["mamba2"], CONFIG, CPU)
    metadata = mamba2.build(two_requests())["mamba2"]
    assert isinstance(metadata, Mamba2Metadata)
    return full.update_block_table(metadata, torch.tensor([[7], [8]]), torch.zeros(4)).num_kv_heads  # E
