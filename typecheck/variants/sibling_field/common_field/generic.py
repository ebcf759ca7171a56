"""One builder reads its spec whether that is an attention layer's or a state's.

Right: it reads only what every spec has.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class TokenBytesBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """Hands the kernel the bytes of one token's share of a page."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        spec = self.kv_cache_spec
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, spec.page_size_bytes // spec.block_size)


TOKEN_BYTES: Final = BackendAdapter("token_bytes", TokenBytesBuilder, PagedTreeImpl)


def run() -> object:
    outputs: list[float] = []
    for spec in (FULL_SPEC, STATE_SPEC):
        group, layer = place(TOKEN_BYTES, spec)
        step = Step()
        group.build(two_requests(), step)
        outputs.append(Attention(layer).forward(step).sum().item())
    return outputs
