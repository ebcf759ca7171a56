"""The author forgets to say that the builder is for states, and reads a state's field.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'num_speculative_blocks'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import LinearImpl
from typecheck.designs.shared.metadata import LinearMetadata
from typecheck.designs.widened.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.widened.layers import place


class SpeculativeLinearBuilder(AttentionMetadataBuilder[LinearMetadata]):
    """Linear attention that rolls rejected tokens back."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> LinearMetadata:
        columns = 1 + self.kv_cache_spec.num_speculative_blocks  # E
        return LinearMetadata(common_attn_metadata.block_table_tensor[:, :columns], common_attn_metadata.num_reqs)


class SpeculativeBackend(AttentionBackend):
    """The back end that configurations call "speculative"."""

    @staticmethod
    @override
    def get_name() -> str:
        return "speculative"

    @staticmethod
    @override
    def get_builder_cls() -> type[SpeculativeLinearBuilder]:
        return SpeculativeLinearBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[LinearImpl]:
        return LinearImpl


def run() -> object:
    return place(SpeculativeBackend, FULL_SPEC).build(two_requests())
