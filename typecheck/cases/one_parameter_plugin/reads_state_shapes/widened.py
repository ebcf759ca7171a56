"""A plug-in's scan says nothing about its spec, and counts the tensors of a state; a layer of keys and values comes.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import Mamba2Impl
from typecheck.designs.shared.metadata import Mamba2Metadata
from typecheck.designs.widened.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.runner import Runner


class RemoteScanBuilder(AttentionMetadataBuilder[Mamba2Metadata]):
    """Out of tree: a scan over states that are kept elsewhere."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        num_states = len(self.kv_cache_spec.shapes)  # E
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, 0], num_states)


class RemoteScanBackend(AttentionBackend):
    """A scan over states that are kept elsewhere."""

    @staticmethod
    @override
    def get_name() -> str:
        return "remote_scan"

    @staticmethod
    @override
    def get_builder_cls() -> type[RemoteScanBuilder]:
        return RemoteScanBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[Mamba2Impl]:
        return Mamba2Impl


def run() -> object:
    return Runner([place(RemoteScanBackend, FULL_SPEC)]).build(two_requests())
