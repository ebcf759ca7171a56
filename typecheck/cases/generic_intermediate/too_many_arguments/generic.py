"""A state builder gives its spec and its metadata to the intermediate, which asks for the metadata only.

At run time: TypeError: Too many
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaSpec
from typecheck.designs.generic.state import BaseMambaMetadataBuilder
from typecheck.designs.shared.metadata import Mamba2Metadata


def run() -> object:
    class FusedMamba2Builder(BaseMambaMetadataBuilder[Mamba2Metadata, MambaSpec]):  # E
        """A chunked scan with a fused convolution."""

        @override
        def build(
            self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
        ) -> Mamba2Metadata:
            return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, 0], self.num_states())

    return FusedMamba2Builder
