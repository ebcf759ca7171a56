"""The runner asks whether a group is one back end's, else whether it is another's with the very same types.

Right: they are two back ends all the same, and a group is one's or the other's.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from typing_extensions import override

from typecheck.designs.shared.batch import FULL_SPEC, MLA_SPEC
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.attention import FullBackend, FullBuilder, MLABackend
from typecheck.designs.widened.core import AttentionBackend, AttentionGroup, AttentionImpl
from typecheck.designs.widened.layers import place


class WideImpl(AttentionImpl[FullMetadata]):
    """Full attention over wide heads."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FullMetadata
    ) -> Tensor:
        return query * attn_metadata.num_kv_heads * 2


class WideBackend(AttentionBackend):
    """Full attention over wide heads."""

    @staticmethod
    @override
    def get_name() -> str:
        return "wide"

    @staticmethod
    @override
    def get_builder_cls() -> type[FullBuilder]:
        return FullBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[WideImpl]:
        return WideImpl


def factors(groups: Sequence[AttentionGroup]) -> list[int]:
    found: list[int] = []
    for group in groups:
        if group.backend is FullBackend:
            found.append(1)
        elif group.backend is WideBackend:
            found.append(2)
        else:
            found.append(0)
    return found


def run() -> object:
    groups = [place(FullBackend, FULL_SPEC), place(WideBackend, FULL_SPEC), place(MLABackend, MLA_SPEC)]
    return factors(groups)
