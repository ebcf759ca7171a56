"""A builder is made by its class's name, which is None: the decorator above the class registers it and forgets to give
it back.

At run time: TypeError: 'NoneType' object is not callable
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC, two_requests
from typecheck.designs.shared.metadata import MLAMetadata
from typecheck.designs.widened.attention import MLACommonMetadataBuilder
from typecheck.designs.widened.core import AnyBuilder

BUILDERS: Final[dict[str, type[AnyBuilder]]] = {}


def registers(name: str) -> Callable[[type[AnyBuilder]], None]:
    """Put the builder into the table of builders."""

    def add(builder: type[AnyBuilder]) -> None:
        BUILDERS[name] = builder

    return add


@registers("padded_mla")
class PaddedMLABuilder(MLACommonMetadataBuilder[MLAMetadata]):
    """Latent attention over vectors of padded size."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        return MLAMetadata(common_attn_metadata.block_table_tensor, self.latent_size() + 8)


def run() -> object:
    return PaddedMLABuilder(MLA_SPEC, ["attn"], CONFIG, CPU).build(0, two_requests())  # E
