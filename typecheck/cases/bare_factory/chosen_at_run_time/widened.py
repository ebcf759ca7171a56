"""A function chooses between two builders; its caller reads the metadata as if it were always the first one's.

At run time: AttributeError: 'GDNMetadata' object has no attribute 'num_states'
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.widened.state import GDNBuilder, Mamba2Builder


def builder_cls(chunked: bool) -> type[Mamba2Builder] | type[GDNBuilder]:
    return Mamba2Builder if chunked else GDNBuilder


def run() -> object:
    builder = builder_cls(chunked=False)(STATE_SPEC, ["mixer"], CONFIG, CPU)
    return builder.build(0, two_requests()).num_states  # E
