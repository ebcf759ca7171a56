"""The author of a back end writes all of its builder but build, and never makes one alone: the runner does.

At run time: TypeError: Can't instantiate abstract class SparseMLABuilder
"""

from __future__ import annotations

from typing import Final

from torch import Tensor
from typing_extensions import override

from typecheck.designs.covariant.attention import MLACommonMetadataBuilder
from typecheck.designs.covariant.core import BackendAdapter, Step
from typecheck.designs.covariant.layers import place
from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import MLAImpl
from typecheck.designs.shared.metadata import MLAMetadata


class SparseMLABuilder(MLACommonMetadataBuilder[MLAMetadata]):
    """Latent attention over chosen tokens."""

    @override
    def update_block_table(self, metadata: MLAMetadata, blk_table: Tensor, slot_mapping: Tensor) -> MLAMetadata:
        return MLAMetadata(blk_table, metadata.latent_size)


SPARSE: Final = BackendAdapter("sparse", SparseMLABuilder, MLAImpl)  # E


def run() -> object:
    group, layer = place(SPARSE, MLA_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return step[layer]
