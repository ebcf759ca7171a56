"""A latent builder puts its spec where the intermediate asks for the metadata that it makes.

At run time: nothing: the type argument is not looked at, and the metadata is right
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MLAAttentionSpec
from typecheck.designs.asserting.attention import MLACommonMetadataBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC, two_requests
from typecheck.designs.shared.metadata import MLAMetadata


def run() -> object:
    class AbsorbedMLABuilder(MLACommonMetadataBuilder[MLAAttentionSpec]):  # E
        @override  # E?
        def build(  # E?
            self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
        ) -> MLAMetadata:
            return MLAMetadata(common_attn_metadata.block_table_tensor, self.latent_size())

    return AbsorbedMLABuilder(MLA_SPEC, ["attn"], CONFIG, CPU).build(0, two_requests())
