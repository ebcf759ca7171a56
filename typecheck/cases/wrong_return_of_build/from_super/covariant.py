"""A cascading builder promises metadata of its own, but leaves a batch without a common prefix to the class above.

At run time: AttributeError: 'FullMetadata' object has no attribute 'prefix_len'
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.attention import FullBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata


@dataclass
class CascadeMetadata(FullMetadata):
    """Full attention, with ``prefix_len`` tokens that all requests share."""

    prefix_len: int


class CascadeBuilder(FullBuilder):
    """Full attention over a common prefix and each request's rest."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> CascadeMetadata:
        if common_prefix_len == 0:
            return super().build(common_prefix_len, common_attn_metadata, fast_build)  # E
        table, lengths = common_attn_metadata.block_table_tensor, common_attn_metadata.seq_lens
        return CascadeMetadata(table, lengths, self.kv_cache_spec.num_kv_heads, common_prefix_len)

    def suffix_lens(self, common_attn_metadata: CommonAttentionMetadata) -> Tensor:
        """Tokens of each request behind the prefix, ``[num_reqs]``."""
        made = self.build(0, common_attn_metadata)
        return made.seq_lens - made.prefix_len


def run() -> object:
    return CascadeBuilder(FULL_SPEC, ["full"], CONFIG, CPU).suffix_lens(two_requests())
