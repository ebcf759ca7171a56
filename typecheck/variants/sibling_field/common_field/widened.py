"""One builder reads its spec whether that is an attention layer's or a state's.

Right: it reads only what every spec has.
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata
from typecheck.designs.widened.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.widened.layers import Attention, place


class TokenBytesBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """Hands the kernel the bytes of one token's share of a page."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        spec = self.kv_cache_spec
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, spec.page_size_bytes // spec.block_size)


class TokenBytesBackend(AttentionBackend):
    """A plug-in for layers of any kind."""

    @staticmethod
    @override
    def get_name() -> str:
        return "token_bytes"

    @staticmethod
    @override
    def get_builder_cls() -> type[TokenBytesBuilder]:
        return TokenBytesBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[PagedTreeImpl]:
        return PagedTreeImpl


def run() -> object:
    outputs: list[float] = []
    for spec in (FULL_SPEC, STATE_SPEC):
        step = place(TokenBytesBackend, spec).build(two_requests())
        outputs.append(Attention("token_bytes", TokenBytesBackend).forward(step).sum().item())
    return outputs
