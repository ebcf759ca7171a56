"""A runner over mixed groups, and what it asks of one back end's groups only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, UniformTypeKVCacheSpecs
from typecheck.designs.asserting.attention import FlashInferBackend, FullBackend, MLABackend, heads_of
from typecheck.designs.asserting.core import AttentionBackend, AttentionCGSupport, AttentionGroup, Step
from typecheck.designs.asserting.plugin import PagedTreeBackend
from typecheck.designs.asserting.state import GDNBackend, LinearBackend, Mamba2Backend, Mamba2Builder
from typecheck.designs.shared.metadata import Mamba2Metadata

__all__ = ["Runner", "new_registry"]


def new_registry() -> Mapping[str, type[AttentionBackend]]:
    """Every small back end by its name."""
    backends: list[type[AttentionBackend]] = [
        FullBackend,
        MLABackend,
        FlashInferBackend,
        Mamba2Backend,
        GDNBackend,
        LinearBackend,
        PagedTreeBackend,
    ]
    return {backend.get_name(): backend for backend in backends}


class Runner:
    """Builds one batch's metadata for groups of any back ends."""

    def __init__(self, groups: Sequence[AttentionGroup]) -> None:
        self.groups: Sequence[AttentionGroup] = groups

    def cudagraph_support(self) -> AttentionCGSupport:
        """What all groups can be captured for."""
        return min(group.cudagraph_support() for group in self.groups)

    def build(self, common: CommonAttentionMetadata) -> Step:
        """Every group's metadata."""
        step: dict[str, object] = {}
        for group in self.groups:
            step.update(group.build(common))
        return step

    def num_attention_heads(self) -> int:
        """Key-value heads of all planned layers: the runner sizes one workspace by them."""
        total = 0
        for group in self.groups:
            if group.backend is FlashInferBackend:
                spec = group.kv_cache_spec
                assert isinstance(spec, AttentionSpec | UniformTypeKVCacheSpecs)
                total += sum(heads_of(spec))
        return total

    def states_moved_to(self, step: Step, blk_table: Tensor, slot_mapping: Tensor) -> Tensor:
        """The state indices of the first Mamba2 group's metadata, moved to another group's blocks."""
        for group in self.groups:
            builder = group.builder
            if isinstance(builder, Mamba2Builder):
                metadata = step[group.layer_names[0]]
                assert isinstance(metadata, Mamba2Metadata)
                return builder.update_block_table(metadata, blk_table, slot_mapping).state_indices
        raise LookupError("no group was bound by mamba2")
