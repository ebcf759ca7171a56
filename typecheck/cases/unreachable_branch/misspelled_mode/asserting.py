"""The builder compares the cache mode with a word that is none of the modes, so aligned states get one column.

At run time: wrong: 1; right: 2
"""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaSpec
from typecheck.designs.asserting.core import AttentionBackend
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import Mamba2Builder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import Mamba2Impl
from typecheck.designs.shared.metadata import Mamba2Metadata


class AlignedMamba2Builder(Mamba2Builder):
    """A chunked scan that keeps the last block's state as well."""

    def columns(self) -> int:
        """States of one request."""
        assert isinstance(self.kv_cache_spec, MambaSpec)
        return 2 if self.kv_cache_spec.mamba_cache_mode == "aligned" else 1  # E

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, : self.columns()], self.num_states())


class AlignedBackend(AttentionBackend):
    """The back end that configurations call "aligned"."""

    @staticmethod
    @override
    def get_name() -> str:
        return "aligned"

    @staticmethod
    @override
    def get_builder_cls() -> type[AlignedMamba2Builder]:
        return AlignedMamba2Builder

    @staticmethod
    @override
    def get_impl_cls() -> type[Mamba2Impl]:
        return Mamba2Impl


def run() -> object:
    metadata = place(AlignedBackend, replace(STATE_SPEC, mamba_cache_mode="align")).build(two_requests())["aligned"]
    assert isinstance(metadata, Mamba2Metadata)
    return metadata.state_indices.shape[1]
