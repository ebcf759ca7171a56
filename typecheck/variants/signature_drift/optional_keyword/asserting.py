"""A builder's ``build`` takes a keyword that the base's does not know.

Right: it is optional, so that a runner need not pass it.
"""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.core import AttentionBackend
from typecheck.designs.asserting.layers import Attention, place
from typecheck.designs.asserting.state import GDNBuilder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import GDNImpl
from typecheck.designs.shared.metadata import GDNMetadata


class DraftingBuilder(GDNBuilder):
    """Can be told how many draft tokens were accepted."""

    @override
    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
        *,
        num_accepted: int | None = None,
    ) -> GDNMetadata:
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        return made if num_accepted is None else replace(made, num_speculative_tokens=num_accepted)


class DraftingBackend(AttentionBackend):
    """The gated delta rule."""

    @staticmethod
    @override
    def get_name() -> str:
        return "drafting"

    @staticmethod
    @override
    def get_builder_cls() -> type[DraftingBuilder]:
        return DraftingBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[GDNImpl]:
        return GDNImpl


def run() -> object:
    group = place(DraftingBackend, STATE_SPEC)
    builder = group.builder
    assert isinstance(builder, DraftingBuilder)
    told = builder.build(0, two_requests(), num_accepted=3)
    output = Attention("drafting", DraftingBackend).forward(group.build(two_requests()))
    return output.sum().item(), told.num_speculative_tokens
