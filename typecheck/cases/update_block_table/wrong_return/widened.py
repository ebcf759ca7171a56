"""The override, taken over from a latent back end, returns that one's metadata.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'seq_lens'
"""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata, MLAMetadata
from typecheck.designs.widened.attention import FullBuilder


class ShiftedBuilder(FullBuilder):
    """Full attention over a table that is shifted by one."""

    @override
    def update_block_table(self, metadata: FullMetadata, blk_table: Tensor, slot_mapping: Tensor) -> FullMetadata:
        return MLAMetadata(blk_table + 1, metadata.num_kv_heads)  # E


def run() -> object:
    builder = ShiftedBuilder(FULL_SPEC, ["full"], CONFIG, CPU)
    return builder.update_block_table(builder.build(0, two_requests()), torch.tensor([[7]]), torch.zeros(4)).seq_lens
