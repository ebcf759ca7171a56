"""A decorator that replaces a back end's builder was copied from the neighbour: a latent builder replaces the full one.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from typing_extensions import TypeVar, override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.attention import FullBackend, MLACommonMetadataBuilder
from typecheck.designs.asserting.core import AnyBuilder, AttentionBackend
from typecheck.designs.asserting.layers import Attention, place
from typecheck.designs.asserting.runner import Runner
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import MLAMetadata

B = TypeVar("B", bound=AnyBuilder)

REPLACED: Final[dict[str, type[AnyBuilder]]] = {}


def replaces(backend: type[AttentionBackend]) -> Callable[[type[B]], type[B]]:
    """Make this builder for that back end's groups."""

    def add(builder: type[B]) -> type[B]:
        REPLACED[backend.get_name()] = builder
        return builder

    return add


@replaces(FullBackend)  # E
class PaddedMLABuilder(MLACommonMetadataBuilder[MLAMetadata]):  # E?
    """Latent attention over vectors of padded size."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        return MLAMetadata(common_attn_metadata.block_table_tensor, self.latent_size() + 8)


def run() -> object:
    group = place(FullBackend, FULL_SPEC)
    group.builder = REPLACED["full"](FULL_SPEC, ["full"], CONFIG, CPU)
    return Attention("full", FullBackend).forward(Runner([group]).build(two_requests()))
