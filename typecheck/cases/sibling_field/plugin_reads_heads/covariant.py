"""An out-of-tree builder that declares no spec, and so is given any, reads key-value heads.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.core import AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class RadixBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """Out of tree: attention over a radix tree of pages. It says nothing about its spec."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        tree = common_attn_metadata.block_table_tensor.repeat(1, self.kv_cache_spec.num_kv_heads)  # E
        return PagedTreeMetadata(tree, self.kv_cache_spec.page_size_bytes)


RADIX: Final = BackendAdapter("radix", RadixBuilder, PagedTreeImpl)


def run() -> object:
    full, _ = place(RADIX, FULL_SPEC)
    state, _ = place(RADIX, STATE_SPEC)
    return Runner([full, state]).build(two_requests())
