"""A function chooses between two builders; its caller reads the metadata as if it were always the first one's.

At run time: AttributeError: 'GDNMetadata' object has no attribute 'num_states'
"""

from __future__ import annotations

from genericbuilders.specs import MambaSpec
from typecheck.designs.generic.core import BoundGroup
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.generic.state import GDN, MAMBA2
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import GDNMetadata, Mamba2Metadata


def group_for(chunked: bool) -> BoundGroup[Mamba2Metadata, MambaSpec] | BoundGroup[GDNMetadata, MambaSpec]:
    return place(MAMBA2, STATE_SPEC)[0] if chunked else place(GDN, STATE_SPEC)[0]


def run() -> object:
    group = group_for(chunked=False)
    step = Runner([group]).build(two_requests())
    return group.metadata(step).num_states  # E
