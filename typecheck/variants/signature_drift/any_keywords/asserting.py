"""A builder's ``build`` takes any keywords.

Right: it takes all that the base's takes, and more.
"""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.core import AttentionBackend
from typecheck.designs.asserting.layers import Attention, place
from typecheck.designs.asserting.state import LinearBuilder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import LinearImpl
from typecheck.designs.shared.metadata import LinearMetadata


class LenientBuilder(LinearBuilder):
    """Takes whatever keywords other back ends' builds have."""

    @override
    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
        **others: object,
    ) -> LinearMetadata:
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        return replace(made, num_decodes=made.num_decodes + len(others))


class LenientBackend(AttentionBackend):
    """Linear attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "lenient"

    @staticmethod
    @override
    def get_builder_cls() -> type[LenientBuilder]:
        return LenientBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[LinearImpl]:
        return LinearImpl


def run() -> object:
    group = place(LenientBackend, STATE_SPEC)
    builder = group.builder
    assert isinstance(builder, LenientBuilder)
    told = builder.build(0, two_requests(), num_accepted=3)
    output = Attention("lenient", LenientBackend).forward(group.build(two_requests()))
    return output.sum().item(), told.num_decodes
