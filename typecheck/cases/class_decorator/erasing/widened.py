"""A state builder is made over a full spec; the decorator that registers its class says that it gives back the base
class.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from typing_extensions import TypeVar, override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata
from typecheck.designs.widened.core import AnyBuilder, AttentionMetadataBuilder
from typecheck.designs.widened.state import BaseMambaMetadataBuilder

M = TypeVar("M")

BUILDERS: Final[dict[str, type[AnyBuilder]]] = {}


def registers(name: str) -> Callable[[type[AttentionMetadataBuilder[M]]], type[AttentionMetadataBuilder[M]]]:
    """Put the builder into the table of builders."""

    def add(builder: type[AttentionMetadataBuilder[M]]) -> type[AttentionMetadataBuilder[M]]:
        BUILDERS[name] = builder
        return builder

    return add


@registers("last_block")
class LastBlockBuilder(BaseMambaMetadataBuilder[Mamba2Metadata]):
    """A chunked scan that continues from the last block."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, -1], self.num_states())


def run() -> object:
    builder = LastBlockBuilder(FULL_SPEC, ["mixer"], CONFIG, CPU)  # E
    return builder.build(0, two_requests())
