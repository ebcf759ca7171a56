"""A function makes a whole back end of a factor: its implementation is a class in that function.

Right: the function says what it returns, and the implementation reads what the builder makes.
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from genericbuilders.specs import AttentionSpec
from typecheck.designs.covariant.attention import FullBuilder
from typecheck.designs.covariant.core import AttentionImpl, BackendAdapter, Step
from typecheck.designs.covariant.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata


def scaled(name: str, factor: float) -> BackendAdapter[FullMetadata, AttentionSpec]:
    class ScaledImpl(AttentionImpl[FullMetadata]):
        @override
        def forward(
            self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FullMetadata
        ) -> Tensor:
            return query * attn_metadata.num_kv_heads * factor

    return BackendAdapter(name, FullBuilder, ScaledImpl)


def run() -> object:
    triple = scaled("triple", 3.0)
    group, layer = place(triple, FULL_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
