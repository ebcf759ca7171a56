"""The mixer reads a field by the name that it had before the metadata class was renamed.

At run time: AttributeError: 'LinearMetadata' object has no attribute 'state_indices_tensor'
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import LinearMetadata
from typecheck.designs.widened.core import Step
from typecheck.designs.widened.layers import Module, place
from typecheck.designs.widened.runner import Runner
from typecheck.designs.widened.state import LinearBackend


class LinearMixer(Module):
    """Reads the metadata itself."""

    def __init__(self, name: str) -> None:
        self.name: str = name

    @override
    def forward(self, step: Step) -> Tensor:
        metadata = step[self.name]
        assert isinstance(metadata, LinearMetadata)
        return metadata.state_indices_tensor * metadata.num_decodes  # E


def run() -> object:
    step = Runner([place(LinearBackend, STATE_SPEC)]).build(two_requests())
    return LinearMixer("linear").forward(step).sum().item()
