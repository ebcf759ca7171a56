"""A function makes a whole back end of a factor: its implementation is a class in that function.

Right: the function says what it returns, and the implementation reads what the builder makes.
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AttentionBackend, AttentionImpl
from typecheck.designs.widened.layers import Attention, place


def scaled(name: str, factor: float) -> type[AttentionBackend]:
    class ScaledImpl(AttentionImpl[FullMetadata]):
        @override
        def forward(
            self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FullMetadata
        ) -> Tensor:
            return query * attn_metadata.num_kv_heads * factor

    class ScaledBackend(AttentionBackend):
        """Full attention, scaled."""

        @staticmethod
        @override
        def get_name() -> str:
            return name

        @staticmethod
        @override
        def get_builder_cls() -> type[FullBuilder]:
            return FullBuilder

        @staticmethod
        @override
        def get_impl_cls() -> type[ScaledImpl]:
            return ScaledImpl

    return ScaledBackend


def run() -> object:
    triple = scaled("triple", 3.0)
    group = place(triple, FULL_SPEC)
    step = group.build(two_requests())
    return Attention(triple.get_name(), triple).forward(step).sum().item()
