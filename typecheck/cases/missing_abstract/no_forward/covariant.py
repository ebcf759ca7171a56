"""The author of an implementation chooses the tokens to attend over and leaves forward to a base that has none.

At run time: TypeError: Can't instantiate abstract class SparseImpl
"""

from __future__ import annotations

from typing import Final

from torch import Tensor

from typecheck.designs.covariant.attention import FullBuilder
from typecheck.designs.covariant.core import AttentionImpl, BackendAdapter, Step
from typecheck.designs.covariant.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata


class SparseImpl(AttentionImpl[FullMetadata]):
    """Full attention over chosen tokens."""

    def choose(self, attn_metadata: FullMetadata) -> Tensor:
        """The tokens to attend over."""
        return attn_metadata.block_table[:, : self.layer.num_kv_heads]


SPARSE: Final = BackendAdapter("sparse", FullBuilder, SparseImpl)  # E


def run() -> object:
    group, layer = place(SPARSE, FULL_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step)
