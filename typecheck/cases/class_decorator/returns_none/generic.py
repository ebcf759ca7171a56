"""A builder is made by its class's name, which is None: the decorator above the class registers it and forgets to give
it back.

At run time: TypeError: 'NoneType' object is not callable
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from typing_extensions import TypeVar, override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.generic.attention import MLACommonMetadataBuilder
from typecheck.designs.generic.core import AttentionImpl, AttentionMetadataBuilder, BackendAdapter, Registry
from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import MLAImpl
from typecheck.designs.shared.metadata import MLAMetadata

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)

REGISTRY: Final = Registry()


def registers(name: str, impl: type[AttentionImpl[M]]) -> Callable[[type[AttentionMetadataBuilder[M, S]]], None]:
    """Put an adapter for the builder into the registry."""

    def add(builder: type[AttentionMetadataBuilder[M, S]]) -> None:
        REGISTRY.add(BackendAdapter(name, builder, impl))

    return add


@registers("padded_mla", MLAImpl)
class PaddedMLABuilder(MLACommonMetadataBuilder[MLAMetadata]):
    """Latent attention over vectors of padded size."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        return MLAMetadata(common_attn_metadata.block_table_tensor, self.latent_size() + 8)


def run() -> object:
    return PaddedMLABuilder(MLA_SPEC, ["attn"], CONFIG, CPU).build(0, two_requests())  # E
