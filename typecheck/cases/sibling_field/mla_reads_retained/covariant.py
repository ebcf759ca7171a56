"""A latent builder reads the window of a sibling: the sliding kind of latent spec has it, the full one not.

At run time: AttributeError: 'MLAAttentionSpec' object has no attribute 'extra_retained_tokens'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.attention import MLABuilder
from typecheck.designs.covariant.core import BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import MLAImpl
from typecheck.designs.shared.metadata import MLAMetadata


class SinkMLABuilder(MLABuilder):
    """Latent attention that keeps tokens before the window."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        table = common_attn_metadata.block_table_tensor
        return MLAMetadata(table[:, -self.kv_cache_spec.extra_retained_tokens :], self.latent_size())  # E


SINK_MLA: Final = BackendAdapter("sink_mla", SinkMLABuilder, MLAImpl)


def run() -> object:
    group, _ = place(SINK_MLA, MLA_SPEC)
    return Runner([group]).build(two_requests())
