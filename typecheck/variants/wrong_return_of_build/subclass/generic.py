"""A builder returns another class than the one that the kernel reads.

Right: it is a subclass of that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.attention import FullBuilder
from typecheck.designs.generic.core import BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata


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


PADDED: Final = BackendAdapter("padded", PaddedBuilder, FullImpl)


def run() -> object:
    group, layer = place(PADDED, FULL_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
