"""An intermediate class is about any attention layer's spec; one builder below it is about a latent layer's.

Right: the narrower spec is one that the intermediate class can work with.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import replace
from typing import Final

from typing_extensions import TypeVar, override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, MLAAttentionSpec
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.generic.layers import Attention, Module, place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl, MLAImpl
from typecheck.designs.shared.metadata import FullMetadata, MLAMetadata

M = TypeVar("M")
A = TypeVar("A", bound=AttentionSpec, default=AttentionSpec)


class PagedBuilder(AttentionMetadataBuilder[M, A], ABC):
    """What builders over pages of keys and values share."""

    def heads(self) -> int:
        """Key-value heads of one layer."""
        return self.kv_cache_spec.num_kv_heads


class WideBuilder(PagedBuilder[FullMetadata]):
    """Full attention."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        return FullMetadata(common_attn_metadata.block_table_tensor, common_attn_metadata.seq_lens, self.heads())


class LatentBuilder(PagedBuilder[MLAMetadata, MLAAttentionSpec]):
    """Latent attention."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        return MLAMetadata(common_attn_metadata.block_table_tensor, self.heads() * (self.kv_cache_spec.alignment or 1))


WIDE: Final = BackendAdapter("wide", WideBuilder, FullImpl)
LATENT: Final = BackendAdapter("latent", LatentBuilder, MLAImpl)


def run() -> object:
    wide, wide_layer = place(WIDE, FULL_SPEC)
    latent, latent_layer = place(LATENT, replace(MLA_SPEC, alignment=64))
    step = Runner([wide, latent]).build(two_requests())
    modules: list[Module] = [Attention(wide_layer), Attention(latent_layer)]
    return [module.forward(step).sum().item() for module in modules]
