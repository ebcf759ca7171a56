"""A plug-in's scan says nothing about its spec, and counts the tensors of a state; a layer of keys and values comes.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import Mamba2Impl
from typecheck.designs.shared.metadata import Mamba2Metadata


class RemoteScanBuilder(AttentionMetadataBuilder[Mamba2Metadata]):
    """Out of tree: a scan over states that are kept elsewhere."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        num_states = len(self.kv_cache_spec.shapes)  # E
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, 0], num_states)


REMOTE_SCAN: Final = BackendAdapter("remote_scan", RemoteScanBuilder, Mamba2Impl)


def run() -> object:
    first, _ = place(REMOTE_SCAN, FULL_SPEC)
    return Runner([first]).build(two_requests())
