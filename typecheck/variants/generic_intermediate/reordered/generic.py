"""An intermediate class has the base's two parameters in the other order.

Right: it says so in its own ``Generic``, and its subclass gives them in that order.
"""

from __future__ import annotations

from abc import ABC
from typing import Final, Generic

from typing_extensions import TypeVar, override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec, MambaSpec
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import Mamba2Impl
from typecheck.designs.shared.metadata import Mamba2Metadata

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)


class SpecFirstBuilder(AttentionMetadataBuilder[M, S], ABC, Generic[S, M]):
    """Builders of a house that names the spec first."""


class StatesBuilder(SpecFirstBuilder[MambaSpec, Mamba2Metadata]):
    """A scan."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, 0], len(self.kv_cache_spec.shapes))


STATES: Final = BackendAdapter("states", StatesBuilder, Mamba2Impl)


def run() -> object:
    group, layer = place(STATES, STATE_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
