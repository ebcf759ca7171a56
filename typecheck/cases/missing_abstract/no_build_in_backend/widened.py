"""The author of a back end writes all of its builder but build, and never makes one alone: the runner does.

At run time: TypeError: Can't instantiate abstract class SparseMLABuilder
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import MLAImpl
from typecheck.designs.shared.metadata import MLAMetadata
from typecheck.designs.widened.attention import MLACommonMetadataBuilder
from typecheck.designs.widened.core import AttentionBackend
from typecheck.designs.widened.layers import place


class SparseMLABuilder(MLACommonMetadataBuilder[MLAMetadata]):
    """Latent attention over chosen tokens."""

    @override
    def update_block_table(self, metadata: MLAMetadata, blk_table: Tensor, slot_mapping: Tensor) -> MLAMetadata:
        return MLAMetadata(blk_table, metadata.latent_size)


class SparseBackend(AttentionBackend):
    """The back end that configurations call "sparse"."""

    @staticmethod
    @override
    def get_name() -> str:
        return "sparse"

    @staticmethod
    @override
    def get_builder_cls() -> type[SparseMLABuilder]:
        return SparseMLABuilder  # E

    @staticmethod
    @override
    def get_impl_cls() -> type[MLAImpl]:
        return MLAImpl


def run() -> object:
    return place(SparseBackend, MLA_SPEC).build(two_requests())
