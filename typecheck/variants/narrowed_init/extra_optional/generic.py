"""The constructor of a Mamba2 builder has one argument more than the base's.

Right: the argument has a default, so that a runner need not know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaSpec
from typecheck.designs.generic.core import BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.generic.state import Mamba2Builder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import Mamba2Impl
from typecheck.designs.shared.metadata import Mamba2Metadata


class ChunkedBuilder(Mamba2Builder):
    """Scans in chunks."""

    def __init__(
        self,
        kv_cache_spec: MambaSpec,
        layer_names: Sequence[str],
        config: EngineConfig,
        device: torch.device,
        chunk_size: int = 2,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.chunk_size: int = chunk_size

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        chunks = -(-common_attn_metadata.max_query_len // self.chunk_size)
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, 0], chunks)


CHUNKED: Final = BackendAdapter("chunked", ChunkedBuilder, Mamba2Impl)


def run() -> object:
    group, layer = place(CHUNKED, STATE_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
