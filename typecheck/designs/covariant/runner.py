"""A runner over mixed groups, and what it asks of one back end's groups only."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.attention import FLASHINFER, FULL, MLA, heads_of
from typecheck.designs.covariant.core import AttentionCGSupport, Group, Registry, Step
from typecheck.designs.covariant.plugin import PAGED_TREE
from typecheck.designs.covariant.state import GDN, LINEAR, MAMBA2

__all__ = ["Runner", "new_registry"]


def new_registry() -> Registry:
    """Every small back end."""
    return Registry([FULL, MLA, FLASHINFER, MAMBA2, GDN, LINEAR, PAGED_TREE])


class Runner:
    """Builds one batch's metadata for groups of any back ends."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups: Sequence[Group] = groups

    def cudagraph_support(self) -> AttentionCGSupport:
        """What all groups can be captured for."""
        return min(group.cudagraph_support() for group in self.groups)

    def build(self, common: CommonAttentionMetadata) -> Step:
        """Every group's metadata."""
        step = Step()
        for group in self.groups:
            group.build(common, step)
        return step

    def num_attention_heads(self) -> int:
        """Key-value heads of all planned layers: the runner sizes one workspace by them."""
        return sum(sum(heads_of(group.spec)) for group in self.groups if FLASHINFER.owns(group))

    def states_moved_to(self, step: Step, blk_table: Tensor, slot_mapping: Tensor) -> Tensor:
        """The state indices of the first Mamba2 group's metadata, moved to another group's blocks."""
        for group in self.groups:
            if MAMBA2.owns(group):
                return group.update_block_table(group.metadata(step), blk_table, slot_mapping).state_indices
        raise LookupError("no group was bound by mamba2")
