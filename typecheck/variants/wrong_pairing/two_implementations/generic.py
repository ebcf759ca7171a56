"""A second back end is made from the full one's builder and another implementation.

Right: that implementation reads what the builder makes; the runner tells the two back ends apart.
"""

from __future__ import annotations

from typing import Final

from torch import Tensor
from typing_extensions import override

from typecheck.designs.generic.attention import FULL, FullBuilder
from typecheck.designs.generic.core import AttentionImpl, BackendAdapter
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata


class HalvedImpl(AttentionImpl[FullMetadata]):
    """Half of what full attention gives."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FullMetadata
    ) -> Tensor:
        return query * attn_metadata.num_kv_heads / 2


HALVED: Final = BackendAdapter("halved", FullBuilder, HalvedImpl)


def run() -> object:
    full, _ = place(FULL, FULL_SPEC)
    halved, layer = place(HALVED, FULL_SPEC)
    step = Runner([full, halved]).build(two_requests())
    return Attention(layer).forward(step).sum().item(), [HALVED.owns(full), HALVED.owns(halved)]
