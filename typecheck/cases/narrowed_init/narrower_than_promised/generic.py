"""A builder says that it takes any keys and values, but its constructor asks for a full spec; a windowed one comes.

At run time: AttributeError: 'SlidingWindowSpec' object has no attribute 'non_causal'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, FullAttentionSpec
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, WINDOW_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata


class BidirectionalBuilder(AttentionMetadataBuilder[FullMetadata, AttentionSpec]):
    """Full attention that asks once whether its layers are causal."""

    def __init__(
        self,
        kv_cache_spec: FullAttentionSpec,  # E
        layer_names: Sequence[str],
        config: EngineConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.causal: bool = not kv_cache_spec.non_causal

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        lengths = common_attn_metadata.seq_lens if self.causal else common_attn_metadata.query_start_loc[1:]
        return FullMetadata(common_attn_metadata.block_table_tensor, lengths, self.kv_cache_spec.num_kv_heads)


BIDIRECTIONAL: Final = BackendAdapter("bidirectional", BidirectionalBuilder, FullImpl)


def run() -> object:
    full, _ = place(BIDIRECTIONAL, FULL_SPEC)
    window, _ = place(BIDIRECTIONAL, WINDOW_SPEC)
    return Runner([full, window]).build(two_requests())
