"""A latent builder reads the window of a sibling: the sliding kind of latent spec has it, the full one not.

At run time: AttributeError: 'MLAAttentionSpec' object has no attribute 'extra_retained_tokens'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC, two_requests
from typecheck.designs.shared.metadata import MLAMetadata
from typecheck.designs.widened.attention import MLABuilder


class SinkMLABuilder(MLABuilder):
    """Latent attention that keeps tokens before the window."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        table = common_attn_metadata.block_table_tensor
        return MLAMetadata(table[:, -self.kv_cache_spec.extra_retained_tokens :], self.latent_size())  # E


def run() -> object:
    return SinkMLABuilder(MLA_SPEC, ["attn"], CONFIG, CPU).build(0, two_requests())
