"""Which of two builders a back end has is decided by the run's settings, and both get one implementation.

Right: both make its metadata, and both are for states.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaSpec
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.generic.state import LinearBuilder
from typecheck.designs.shared.batch import CONFIG, STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import LinearImpl
from typecheck.designs.shared.metadata import LinearMetadata


class RollingLinearBuilder(AttentionMetadataBuilder[LinearMetadata, MambaSpec]):
    """Counts requests that bring draft tokens as decodes, too."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> LinearMetadata:
        lengths = common_attn_metadata.query_start_loc_cpu.diff()
        decodes = lengths <= 1 + self.config.num_speculative_tokens
        return LinearMetadata(common_attn_metadata.block_table_tensor[:, 0], int(decodes.sum()))


def builder_for(config: EngineConfig) -> type[AttentionMetadataBuilder[LinearMetadata, MambaSpec]]:
    return RollingLinearBuilder if config.num_speculative_tokens else LinearBuilder


CHOSEN: Final = BackendAdapter("chosen", builder_for(CONFIG), LinearImpl)


def run() -> object:
    group, layer = place(CHOSEN, STATE_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
