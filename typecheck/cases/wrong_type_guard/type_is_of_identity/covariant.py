"""A check for one very back end is declared with TypeIs: a second one of the same types then passes for the other
kind.

At run time: AttributeError: 'Mamba2Metadata' object has no attribute 'num_speculative_tokens'
"""

from __future__ import annotations

from typing import Final, TypeAlias

from typing_extensions import TypeIs

from genericbuilders.specs import MambaSpec
from typecheck.designs.covariant.core import BackendAdapter, BoundGroup, Step
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.state import MAMBA2, Mamba2Builder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import Mamba2Impl
from typecheck.designs.shared.metadata import GDNMetadata, Mamba2Metadata

StateGroup: TypeAlias = BoundGroup[Mamba2Metadata, MambaSpec] | BoundGroup[GDNMetadata, MambaSpec]

TUNED: Final = BackendAdapter("tuned", Mamba2Builder, Mamba2Impl)


def is_mamba2(group: StateGroup) -> TypeIs[BoundGroup[Mamba2Metadata, MambaSpec]]:  # E
    return MAMBA2.owns(group)


def draft_tokens(group: StateGroup) -> int:
    if is_mamba2(group):
        return 0
    step = Step()
    group.build(two_requests(), step)
    return group.metadata(step).num_speculative_tokens


def run() -> object:
    group, _ = place(TUNED, STATE_SPEC)
    return draft_tokens(group)
