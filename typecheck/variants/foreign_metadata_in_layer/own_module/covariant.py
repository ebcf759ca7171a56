"""A model's own layer reads fields of the metadata which other back ends' metadata do not have.

Right: it is a layer of the gated delta rule, and is placed on that back end.
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.covariant.core import AttentionLayer, Step
from typecheck.designs.covariant.layers import Module, place
from typecheck.designs.covariant.state import GDN
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import GDNMetadata


class DeltaMixer(Module):
    """Reads the metadata itself."""

    def __init__(self, layer: AttentionLayer[GDNMetadata]) -> None:
        self.layer: AttentionLayer[GDNMetadata] = layer

    @override
    def forward(self, step: Step) -> Tensor:
        metadata = step[self.layer]
        return metadata.state_indices * metadata.num_speculative_tokens


def run() -> object:
    group, layer = place(GDN, STATE_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return DeltaMixer(layer).forward(step).sum().item()
