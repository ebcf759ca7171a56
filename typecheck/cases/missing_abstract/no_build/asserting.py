"""The author of a builder writes all of it but build, and makes one.

At run time: TypeError: Can't instantiate abstract class SparseMLABuilder
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.asserting.attention import MLACommonMetadataBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC
from typecheck.designs.shared.metadata import MLAMetadata


class SparseMLABuilder(MLACommonMetadataBuilder[MLAMetadata]):
    """Latent attention over chosen tokens."""

    def num_chosen(self) -> int:
        """Tokens that are attended over."""
        return min(self.config.max_model_len, 2 * self.kv_cache_spec.block_size)

    @override
    def update_block_table(self, metadata: MLAMetadata, blk_table: Tensor, slot_mapping: Tensor) -> MLAMetadata:
        return MLAMetadata(blk_table, metadata.latent_size)


def run() -> object:
    builder = SparseMLABuilder(MLA_SPEC, ["mla"], CONFIG, CPU)  # E
    return builder.num_chosen()
