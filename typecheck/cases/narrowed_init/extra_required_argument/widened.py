"""The constructor needs the block table's width, which the runner does not pass to the builders that it makes.

At run time: TypeError: IndexerBuilder.__init__() missing 1 required keyword-only argument: 'block_table_width'
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MLAAttentionSpec
from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.metadata import MLAMetadata
from typecheck.designs.widened.attention import MLABackend, MLABuilder
from typecheck.designs.widened.layers import place


class IndexerBuilder(MLABuilder):
    """Latent attention that expands a block table of known width."""

    def __init__(
        self,
        kv_cache_spec: MLAAttentionSpec,
        layer_names: Sequence[str],
        config: EngineConfig,
        device: torch.device,
        *,
        block_table_width: int,  # E
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.expanded: Tensor = torch.zeros(config.max_num_seqs, block_table_width, dtype=torch.int32)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        rows = common_attn_metadata.num_reqs
        return MLAMetadata(self.expanded[:rows], self.latent_size())


class IndexerBackend(MLABackend):
    """Latent attention with an indexer."""

    @staticmethod
    @override
    def get_builder_cls() -> type[IndexerBuilder]:
        return IndexerBuilder


def run() -> object:
    return place(IndexerBackend, MLA_SPEC).build(two_requests())
