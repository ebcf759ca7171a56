"""A builder returns another class than the one that the kernel reads.

Right: it is a subclass of that one.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AttentionBackend
from typecheck.designs.widened.layers import Attention, place


@dataclass
class PaddedMetadata(FullMetadata):
    """The same, and how many rows were added."""

    num_padded: int = 0


class PaddedBuilder(FullBuilder):
    """Counts rows without tokens."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PaddedMetadata:
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        padded = int((made.seq_lens == 0).sum())
        return PaddedMetadata(made.block_table, made.seq_lens, made.num_kv_heads, padded)


class PaddedBackend(AttentionBackend):
    """Full attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "padded"

    @staticmethod
    @override
    def get_builder_cls() -> type[PaddedBuilder]:
        return PaddedBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


def run() -> object:
    group = place(PaddedBackend, FULL_SPEC)
    step = group.build(two_requests())
    return Attention(PaddedBackend.get_name(), PaddedBackend).forward(step).sum().item()
