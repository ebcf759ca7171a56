"""A builder over states enlarges the convolution state for the draft tokens, in the spec's own tuple of shapes.

At run time: TypeError: 'tuple' object does not support item assignment
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.state import Mamba2Builder
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata


class RollbackBuilder(Mamba2Builder):
    """A chunked scan whose convolution state also covers the draft tokens."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        self.kv_cache_spec.shapes[0] = (2, 3 + self.config.num_speculative_tokens)  # E
        return super().build(common_prefix_len, common_attn_metadata, fast_build)


def run() -> object:
    return RollbackBuilder(STATE_SPEC, ["mixer"], CONFIG, CPU).build(0, two_requests())
