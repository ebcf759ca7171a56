"""The runner asks whether a group is one back end's, else whether it is another's with the very same types.

Right: they are two back ends all the same, and a group is one's or the other's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch import Tensor
from typing_extensions import override

from typecheck.designs.generic.attention import FULL, MLA, FullBuilder
from typecheck.designs.generic.core import AttentionImpl, BackendAdapter, Group
from typecheck.designs.generic.layers import place
from typecheck.designs.shared.batch import FULL_SPEC, MLA_SPEC
from typecheck.designs.shared.metadata import FullMetadata


class WideImpl(AttentionImpl[FullMetadata]):
    """Full attention over wide heads."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FullMetadata
    ) -> Tensor:
        return query * attn_metadata.num_kv_heads * 2


WIDE: Final = BackendAdapter("wide", FullBuilder, WideImpl)


def factors(groups: Sequence[Group]) -> list[int]:
    found: list[int] = []
    for group in groups:
        if FULL.owns(group):
            found.append(1)
        elif WIDE.owns(group):
            found.append(2)
        else:
            found.append(0)
    return found


def run() -> object:
    groups: list[Group] = [place(FULL, FULL_SPEC)[0], place(WIDE, FULL_SPEC)[0], place(MLA, MLA_SPEC)[0]]
    return factors(groups)
