"""The constructor needs the block table's width, which the runner does not pass to the builders that it makes.

At run time: TypeError: IndexerBuilder.__init__() missing 1 required keyword-only argument: 'block_table_width'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MLAAttentionSpec
from typecheck.designs.covariant.attention import MLABuilder
from typecheck.designs.covariant.core import BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import MLAImpl
from typecheck.designs.shared.metadata import MLAMetadata


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


INDEXER: Final = BackendAdapter("indexer", IndexerBuilder, MLAImpl)


def run() -> object:
    group, _ = place(INDEXER, MLA_SPEC)
    return Runner([group]).build(two_requests())
