"""The mixer of a gated delta layer was copied from Mamba2's and still takes Mamba2's metadata.

At run time: AssertionError:
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata
from typecheck.designs.widened.core import Step
from typecheck.designs.widened.layers import Module, place
from typecheck.designs.widened.runner import Runner
from typecheck.designs.widened.state import GDNBackend


class GDNMixer(Module):
    """Reads the metadata itself."""

    def __init__(self, name: str) -> None:
        self.name: str = name

    @override
    def forward(self, step: Step) -> Tensor:
        metadata = step[self.name]
        assert isinstance(metadata, Mamba2Metadata)  # E
        return metadata.state_indices * metadata.num_states


def run() -> object:
    step = Runner([place(GDNBackend, STATE_SPEC)]).build(two_requests())
    return GDNMixer("gdn").forward(step).sum().item()
