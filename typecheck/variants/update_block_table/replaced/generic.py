"""A builder's ``update_block_table`` copies the metadata with another table, whatever else it holds.

Right: `dataclasses.replace` keeps the class.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor
from typing_extensions import override

from typecheck.designs.generic.attention import MLABuilder
from typecheck.designs.generic.core import BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import MLAImpl
from typecheck.designs.shared.metadata import MLAMetadata


class MovingMLABuilder(MLABuilder):
    """Latent attention whose metadata can be moved to another group."""

    @override
    def update_block_table(self, metadata: MLAMetadata, blk_table: Tensor, slot_mapping: Tensor) -> MLAMetadata:
        return replace(metadata, block_table=blk_table)


MOVING_MLA: Final = BackendAdapter("moving_mla", MovingMLABuilder, MLAImpl)


def run() -> object:
    group, layer = place(MOVING_MLA, MLA_SPEC)
    made = group.builder.build(0, two_requests())
    moved = group.update_block_table(made, torch.tensor([[7], [8]]), torch.zeros(4))
    step = Step()
    group.hold(step, moved)
    return Attention(layer).forward(step).sum().item(), moved.block_table.sum().item()
