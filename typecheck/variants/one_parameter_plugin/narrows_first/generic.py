"""A plug-in reads ``shapes`` and ``num_kv_heads``, neither of which every spec has.

Right: it looks at the spec's class before.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, MambaSpec
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class KindsBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """Serves layers of any kind."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.parts())

    def parts(self) -> int:
        """Parts that a page falls into."""
        spec = self.kv_cache_spec
        if isinstance(spec, MambaSpec):
            return len(spec.shapes)
        return spec.num_kv_heads if isinstance(spec, AttentionSpec) else 1


KINDS: Final = BackendAdapter("kinds", KindsBuilder, PagedTreeImpl)


def run() -> object:
    outputs: list[float] = []
    for spec in (FULL_SPEC, STATE_SPEC):
        group, layer = place(KINDS, spec)
        step = Step()
        group.build(two_requests(), step)
        outputs.append(Attention(layer).forward(step).sum().item())
    return outputs
