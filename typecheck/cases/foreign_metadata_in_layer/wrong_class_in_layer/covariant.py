"""The mixer of a gated delta layer was copied from Mamba2's and still takes Mamba2's metadata.

At run time: AttributeError: 'GDNMetadata' object has no attribute 'num_states'
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.covariant.core import AttentionLayer, Step
from typecheck.designs.covariant.layers import Module, place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.covariant.state import GDN
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata


class GDNMixer(Module):
    """Reads the metadata itself."""

    def __init__(self, layer: AttentionLayer[Mamba2Metadata]) -> None:
        self.layer: AttentionLayer[Mamba2Metadata] = layer

    @override
    def forward(self, step: Step) -> Tensor:
        metadata = step[self.layer]
        return metadata.state_indices * metadata.num_states


def run() -> object:
    group, layer = place(GDN, STATE_SPEC)
    mixer = GDNMixer(layer)  # E
    return mixer.forward(Runner([group]).build(two_requests())).sum().item()
