"""A decorator that replaces a back end's builder was copied from the neighbour: a latent builder replaces the full one.

At run time: TypeError: adapter 'my_full': load.<locals>.PaddedMLABuilder makes MLAMetadata
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from typing_extensions import TypeVar, override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.generic.attention import FULL, MLACommonMetadataBuilder
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter, Registry
from typecheck.designs.shared.metadata import MLAMetadata

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)

REGISTRY: Final = Registry()


def replaces(
    adapter: BackendAdapter[M, S],
) -> Callable[[type[AttentionMetadataBuilder[M, S]]], type[AttentionMetadataBuilder[M, S]]]:
    """Make this builder for that back end's groups."""

    def add(builder: type[AttentionMetadataBuilder[M, S]]) -> type[AttentionMetadataBuilder[M, S]]:
        REGISTRY.add(BackendAdapter(f"my_{adapter.name}", builder, adapter.impl))
        return builder

    return add


def load() -> Registry:
    """The plug-in's entry point."""

    @replaces(FULL)  # E
    class PaddedMLABuilder(MLACommonMetadataBuilder[MLAMetadata]):  # E?
        """Latent attention over vectors of padded size."""

        @override
        def build(
            self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
        ) -> MLAMetadata:
            return MLAMetadata(common_attn_metadata.block_table_tensor, self.latent_size() + 8)

    return REGISTRY


def run() -> object:
    return load().by_name("my_full")
