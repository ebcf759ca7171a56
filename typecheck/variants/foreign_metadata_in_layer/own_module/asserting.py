"""A model's own layer reads fields of the metadata which other back ends' metadata do not have.

Right: it is a layer of the gated delta rule, and is placed on that back end.
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.asserting.core import Step
from typecheck.designs.asserting.layers import Module, place
from typecheck.designs.asserting.state import GDNBackend
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import GDNMetadata


class DeltaMixer(Module):
    """Reads the metadata itself."""

    def __init__(self, name: str) -> None:
        self.name: str = name

    @override
    def forward(self, step: Step) -> Tensor:
        metadata = step[self.name]
        assert isinstance(metadata, GDNMetadata)
        return metadata.state_indices * metadata.num_speculative_tokens


def run() -> object:
    step = place(GDNBackend, STATE_SPEC).build(two_requests())
    return DeltaMixer("gdn").forward(step).sum().item()
