"""An override names its parameters otherwise than the method that it overrides.

Right: they are positional only, so that no call can name them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from torch import Tensor
from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.attention import FullBuilder
from typecheck.designs.covariant.core import BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata


class CroppedBuilder(FullBuilder):
    """Cuts the block table before it is handed on."""

    def crop(self, table: Tensor, columns: int, /) -> Tensor:
        """The table's first columns."""
        return table[:, :columns]

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        return replace(made, block_table=self.crop(made.block_table, 1))


class TailBuilder(CroppedBuilder):
    """Keeps the other end."""

    @override
    def crop(self, blocks: Tensor, kept: int, /) -> Tensor:
        return blocks[:, -kept:]


CROPPED: Final = BackendAdapter("cropped", CroppedBuilder, FullImpl)
TAIL: Final = BackendAdapter("tail", TailBuilder, FullImpl)


def run() -> object:
    groups = [place(adapter, FULL_SPEC)[0] for adapter in (CROPPED, TAIL)]
    return [group.builder.build(0, two_requests()).block_table.sum().item() for group in groups]
