"""A plug-in's builder says nothing about its spec, and keeps the heads of the spec that its constructor gets.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata
from typecheck.designs.widened.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.runner import Runner


class TreeAttentionBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """Out of tree: attention over a tree of pages, a row for each head."""

    def __init__(
        self, kv_cache_spec: KVCacheSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.rows_per_request: int = kv_cache_spec.num_kv_heads  # E

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        tree = common_attn_metadata.block_table_tensor.repeat(1, self.rows_per_request)
        return PagedTreeMetadata(tree, self.kv_cache_spec.page_size_bytes)


class TreeAttentionBackend(AttentionBackend):
    """Attention over a tree of pages, a row for each head."""

    @staticmethod
    @override
    def get_name() -> str:
        return "tree_attention"

    @staticmethod
    @override
    def get_builder_cls() -> type[TreeAttentionBuilder]:
        return TreeAttentionBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[PagedTreeImpl]:
        return PagedTreeImpl


def run() -> object:
    return Runner([place(TreeAttentionBackend, FULL_SPEC), place(TreeAttentionBackend, STATE_SPEC)]).build(
        two_requests()
    )
