"""A builder over states reads ``dtypes``, which a spec of keys and values does not have.

Right: it is only ever given a `MambaSpec`.
"""

from __future__ import annotations

from typing import Final

import torch
from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.core import BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.generic.state import BaseMambaMetadataBuilder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import Mamba2Impl
from typecheck.designs.shared.metadata import Mamba2Metadata


class FloatStateBuilder(BaseMambaMetadataBuilder[Mamba2Metadata]):
    """Counts the tensors of a state that are kept in float32."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        floats = [dtype for dtype in self.kv_cache_spec.dtypes if dtype == torch.float32]
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, 0], len(floats))


FLOAT_STATE: Final = BackendAdapter("float_state", FloatStateBuilder, Mamba2Impl)


def run() -> object:
    group, layer = place(FLOAT_STATE, STATE_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
