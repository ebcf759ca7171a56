"""The author of an implementation chooses the tokens to attend over and leaves forward to a base that has none.

At run time: TypeError: Can't instantiate abstract class SparseImpl
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.asserting.attention import FullBuilder
from typecheck.designs.asserting.core import AttentionBackend, AttentionImpl
from typecheck.designs.asserting.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata


class SparseImpl(AttentionImpl[FullMetadata]):
    """Full attention over chosen tokens."""

    def choose(self, attn_metadata: FullMetadata) -> Tensor:
        """The tokens to attend over."""
        return attn_metadata.block_table[:, : self.layer.num_kv_heads]


class SparseBackend(AttentionBackend):
    """The back end that configurations call "sparse"."""

    @staticmethod
    @override
    def get_name() -> str:
        return "sparse"

    @staticmethod
    @override
    def get_builder_cls() -> type[FullBuilder]:
        return FullBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[SparseImpl]:
        return SparseImpl  # E


def run() -> object:
    step = place(SparseBackend, FULL_SPEC).build(two_requests())
    return Attention("sparse", SparseBackend).forward(step)
