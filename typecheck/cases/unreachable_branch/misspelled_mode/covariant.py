"""The builder compares the cache mode with a word that is none of the modes, so aligned states get one column.

At run time: wrong: 1; right: 2
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.core import BackendAdapter, Step
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.state import Mamba2Builder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import Mamba2Impl
from typecheck.designs.shared.metadata import Mamba2Metadata


class AlignedMamba2Builder(Mamba2Builder):
    """A chunked scan that keeps the last block's state as well."""

    def columns(self) -> int:
        """States of one request."""
        return 2 if self.kv_cache_spec.mamba_cache_mode == "aligned" else 1  # E

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, : self.columns()], self.num_states())


ALIGNED: Final = BackendAdapter("aligned", AlignedMamba2Builder, Mamba2Impl)


def run() -> object:
    group, layer = place(ALIGNED, replace(STATE_SPEC, mamba_cache_mode="align"))
    step = Step()
    group.build(two_requests(), step)
    return step[layer].state_indices.shape[1]
