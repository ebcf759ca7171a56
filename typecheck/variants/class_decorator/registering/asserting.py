"""A registering decorator stands on a builder's class.

Right: its type says that the class comes out as it went in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from typing_extensions import TypeVar, override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.attention import FullBuilder
from typecheck.designs.asserting.core import AttentionBackend
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata

C = TypeVar("C", bound=type[object])

LISTED: Final[dict[str, type[object]]] = {}


def listed(name: str) -> Callable[[C], C]:
    def add(builder: C) -> C:
        LISTED[name] = builder
        return builder

    return add


@listed("single_head")
class SingleHeadBuilder(FullBuilder):
    """Full attention with one key-value head."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        return replace(made, num_kv_heads=1)


class SingleHeadBackend(AttentionBackend):
    """Full attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "single_head"

    @staticmethod
    @override
    def get_builder_cls() -> type[SingleHeadBuilder]:
        return SingleHeadBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


def run() -> object:
    builder = SingleHeadBuilder(FULL_SPEC, ["attn"], CONFIG, CPU)
    made = builder.build(0, two_requests()).num_kv_heads
    return made, LISTED["single_head"] is SingleHeadBackend.get_builder_cls()
