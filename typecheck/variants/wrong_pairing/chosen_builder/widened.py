"""Which of two builders a back end has is decided by the run's settings, and both get one implementation.

Right: both make its metadata, and both are for states.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaSpec
from typecheck.designs.shared.batch import CONFIG, STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import LinearImpl
from typecheck.designs.shared.metadata import LinearMetadata
from typecheck.designs.widened.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.widened.layers import Attention, place
from typecheck.designs.widened.state import LinearBuilder


class RollingLinearBuilder(AttentionMetadataBuilder[LinearMetadata]):
    """Counts requests that bring draft tokens as decodes, too."""

    def __init__(
        self, kv_cache_spec: MambaSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> LinearMetadata:
        lengths = common_attn_metadata.query_start_loc_cpu.diff()
        decodes = lengths <= 1 + self.config.num_speculative_tokens
        return LinearMetadata(common_attn_metadata.block_table_tensor[:, 0], int(decodes.sum()))


def builder_for(config: EngineConfig) -> type[AttentionMetadataBuilder[LinearMetadata]]:
    return RollingLinearBuilder if config.num_speculative_tokens else LinearBuilder


class ChosenBackend(AttentionBackend):
    """Linear attention, with draft tokens or without."""

    @staticmethod
    @override
    def get_name() -> str:
        return "chosen"

    @staticmethod
    @override
    def get_builder_cls() -> type[AttentionMetadataBuilder[LinearMetadata]]:
        return builder_for(CONFIG)

    @staticmethod
    @override
    def get_impl_cls() -> type[LinearImpl]:
        return LinearImpl


def run() -> object:
    group = place(ChosenBackend, STATE_SPEC)
    step = group.build(two_requests())
    return Attention(ChosenBackend.get_name(), ChosenBackend).forward(step).sum().item()
