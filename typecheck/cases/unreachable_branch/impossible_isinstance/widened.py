"""The author of a hybrid model's latent builder adds the state's bytes where its spec is a state's; it never is.

At run time: wrong: 24; right: 64
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaSpec
from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC, two_requests
from typecheck.designs.shared.metadata import MLAMetadata
from typecheck.designs.widened.attention import MLACommonMetadataBuilder


class HybridMLABuilder(MLACommonMetadataBuilder[MLAMetadata]):
    """Latent attention beside state-space layers."""

    def state_bytes(self) -> int:
        """Bytes of a state that stands beside the latent vectors."""
        if isinstance(self.kv_cache_spec, MambaSpec):  # E
            return self.kv_cache_spec.page_size_bytes  # E?
        return 0

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        return MLAMetadata(common_attn_metadata.block_table_tensor, self.latent_size() + self.state_bytes())


def run() -> object:
    return HybridMLABuilder(MLA_SPEC, ["mla"], CONFIG, CPU).build(0, two_requests()).latent_size
