"""The override, taken over from a latent back end, returns that one's metadata.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'seq_lens'
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from typing_extensions import override

from typecheck.designs.covariant.attention import FullBuilder
from typecheck.designs.covariant.core import BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata, MLAMetadata


class ShiftedBuilder(FullBuilder):
    """Full attention over a table that is shifted by one."""

    @override
    def update_block_table(self, metadata: FullMetadata, blk_table: Tensor, slot_mapping: Tensor) -> FullMetadata:
        return MLAMetadata(blk_table + 1, metadata.num_kv_heads)  # E


SHIFTED: Final = BackendAdapter("shifted", ShiftedBuilder, FullImpl)


def run() -> object:
    group, _ = place(SHIFTED, FULL_SPEC)
    step = Runner([group]).build(two_requests())
    return group.update_block_table(group.metadata(step), torch.tensor([[7]]), torch.zeros(4)).seq_lens
