"""A second back end is made from the full one's builder and another implementation.

Right: that implementation reads what the builder makes; the runner tells the two back ends apart.
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.attention import FullBackend, FullBuilder
from typecheck.designs.widened.core import AttentionBackend, AttentionImpl
from typecheck.designs.widened.layers import Attention, place
from typecheck.designs.widened.runner import Runner


class HalvedImpl(AttentionImpl[FullMetadata]):
    """Half of what full attention gives."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FullMetadata
    ) -> Tensor:
        return query * attn_metadata.num_kv_heads / 2


class HalvedBackend(AttentionBackend):
    """Full attention, halved."""

    @staticmethod
    @override
    def get_name() -> str:
        return "halved"

    @staticmethod
    @override
    def get_builder_cls() -> type[FullBuilder]:
        return FullBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[HalvedImpl]:
        return HalvedImpl


def run() -> object:
    groups = [place(FullBackend, FULL_SPEC), place(HalvedBackend, FULL_SPEC)]
    step = Runner(groups).build(two_requests())
    halved = [group.backend is HalvedBackend for group in groups]
    return Attention("halved", HalvedBackend).forward(step).sum().item(), halved
