"""A builder's ``build`` takes any keywords.

Right: it takes all that the base's takes, and more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.core import BackendAdapter, Step
from typecheck.designs.covariant.layers import Attention, place
from typecheck.designs.covariant.state import LinearBuilder
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


LENIENT: Final = BackendAdapter("lenient", LenientBuilder, LinearImpl)


def run() -> object:
    group, layer = place(LENIENT, STATE_SPEC)
    builder = group.builder
    assert isinstance(builder, LenientBuilder)
    told = builder.build(0, two_requests(), num_accepted=3)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item(), told.num_decodes
