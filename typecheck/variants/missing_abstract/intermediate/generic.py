"""A builder calls a method of its own that it does not implement, and another class implements no ``build``.

Right: the first is abstract; the second inherits from it what it lacks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.core import BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.generic.state import BaseMambaMetadataBuilder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import GDNImpl
from typecheck.designs.shared.metadata import GDNMetadata


class StepwiseBuilder(BaseMambaMetadataBuilder[GDNMetadata], ABC):
    """Builds for as many draft tokens as a subclass says."""

    @abstractmethod
    def num_drafts(self) -> int:
        """Draft tokens of one request."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> GDNMetadata:
        drafts = self.num_drafts()
        return GDNMetadata(common_attn_metadata.block_table_tensor[:, : 1 + drafts], drafts)


class OneDraftBuilder(StepwiseBuilder):
    """One draft token a request."""

    @override
    def num_drafts(self) -> int:
        return 1


ONE_DRAFT: Final = BackendAdapter("one_draft", OneDraftBuilder, GDNImpl)


def run() -> object:
    group, layer = place(ONE_DRAFT, STATE_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
