"""A builder for keys and values states in its class that its spec is a state's, as the file it was copied from did.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, MambaSpec
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.widened.layers import place


class StateTableBuilder(AttentionMetadataBuilder[FullMetadata]):
    """Full attention over a table that is cut by the shape of a state."""

    kv_cache_spec: MambaSpec  # pyrefly: ignore[bad-override-mutable-attribute]  # E

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        rows = self.kv_cache_spec.shapes[0][0]
        return FullMetadata(common_attn_metadata.block_table_tensor[:, :rows], common_attn_metadata.seq_lens, rows)


class StateTableBackend(AttentionBackend):
    """Full attention over a cut table."""

    @staticmethod
    @override
    def get_name() -> str:
        return "state_table"

    @staticmethod
    @override
    def get_builder_cls() -> type[StateTableBuilder]:
        return StateTableBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


def run() -> object:
    return place(StateTableBackend, FULL_SPEC).build(two_requests())
