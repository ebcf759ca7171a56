"""A builder's ``update_block_table`` copies the metadata with another table, whatever else it holds.

Right: `dataclasses.replace` keeps the class.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from typing_extensions import override

from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import MLAImpl
from typecheck.designs.shared.metadata import MLAMetadata
from typecheck.designs.widened.attention import MLABuilder
from typecheck.designs.widened.core import AttentionBackend, Step
from typecheck.designs.widened.layers import Attention


class MovingMLABuilder(MLABuilder):
    """Latent attention whose metadata can be moved to another group."""

    @override
    def update_block_table(self, metadata: MLAMetadata, blk_table: Tensor, slot_mapping: Tensor) -> MLAMetadata:
        return replace(metadata, block_table=blk_table)


class MovingMLABackend(AttentionBackend):
    """Latent attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "moving_mla"

    @staticmethod
    @override
    def get_builder_cls() -> type[MovingMLABuilder]:
        return MovingMLABuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[MLAImpl]:
        return MLAImpl


def run() -> object:
    builder = MovingMLABuilder(MLA_SPEC, ["attn"], CONFIG, CPU)
    moved = builder.update_block_table(builder.build(0, two_requests()), torch.tensor([[7], [8]]), torch.zeros(4))
    step: Step = {"attn": moved}
    return Attention("attn", MovingMLABackend).forward(step).sum().item(), moved.block_table.sum().item()
