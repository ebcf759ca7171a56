"""A builder over states reads ``dtypes``, which a spec of keys and values does not have.

Right: it is only ever given a `MambaSpec`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, MambaSpec
from typecheck.designs.asserting.core import AttentionBackend
from typecheck.designs.asserting.layers import Attention, place
from typecheck.designs.asserting.state import BaseMambaMetadataBuilder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import Mamba2Impl
from typecheck.designs.shared.metadata import Mamba2Metadata


class FloatStateBuilder(BaseMambaMetadataBuilder[Mamba2Metadata]):
    """Counts the tensors of a state that are kept in float32."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        assert isinstance(kv_cache_spec, MambaSpec)
        self.dtypes: tuple[torch.dtype, ...] = kv_cache_spec.dtypes

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        floats = [dtype for dtype in self.dtypes if dtype == torch.float32]
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, 0], len(floats))


class FloatStateBackend(AttentionBackend):
    """A scan over float states."""

    @staticmethod
    @override
    def get_name() -> str:
        return "float_state"

    @staticmethod
    @override
    def get_builder_cls() -> type[FloatStateBuilder]:
        return FloatStateBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[Mamba2Impl]:
        return Mamba2Impl


def run() -> object:
    group = place(FloatStateBackend, STATE_SPEC)
    step = group.build(two_requests())
    return Attention(FloatStateBackend.get_name(), FloatStateBackend).forward(step).sum().item()
