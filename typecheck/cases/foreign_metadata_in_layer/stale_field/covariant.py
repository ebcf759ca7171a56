"""The mixer reads a field by the name that it had before the metadata class was renamed.

At run time: AttributeError: 'LinearMetadata' object has no attribute 'state_indices_tensor'
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.covariant.core import AttentionLayer, Step
from typecheck.designs.covariant.layers import Module, place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.covariant.state import LINEAR
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import LinearMetadata


class LinearMixer(Module):
    """Reads the metadata itself."""

    def __init__(self, layer: AttentionLayer[LinearMetadata]) -> None:
        self.layer: AttentionLayer[LinearMetadata] = layer

    @override
    def forward(self, step: Step) -> Tensor:
        metadata = step[self.layer]
        return metadata.state_indices_tensor * metadata.num_decodes  # E


def run() -> object:
    group, layer = place(LINEAR, STATE_SPEC)
    return LinearMixer(layer).forward(Runner([group]).build(two_requests())).sum().item()
