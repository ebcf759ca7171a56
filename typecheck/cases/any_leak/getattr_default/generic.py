"""A builder over states looks the number of state tensors up by a name that no spec of states has, with a default for
others.

At run time: wrong: 1; right: 2
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.state import Mamba2Builder
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata


class CountedStatesBuilder(Mamba2Builder):
    """A chunked scan over as many tensors as the spec says."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        num_states: int = getattr(self.kv_cache_spec, "num_states", 1)  # E
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, 0], num_states)


def run() -> object:
    return CountedStatesBuilder(STATE_SPEC, ["mixer"], CONFIG, CPU).build(0, two_requests()).num_states
