"""A function chooses between two builders; its caller reads the metadata as if it were always the first one's.

At run time: AttributeError: 'GDNMetadata' object has no attribute 'num_states'
"""

from __future__ import annotations

from typing import cast

from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.state import GDNBuilder, Mamba2Builder
from typecheck.designs.shared.batch import CONFIG, CPU, LAYER_SPECS, two_requests


def builder_cls(chunked: bool) -> type[Mamba2Builder] | type[GDNBuilder]:
    return Mamba2Builder if chunked else GDNBuilder


def run() -> object:
    builder = builder_cls(chunked=False)(cast("AttentionSpec", LAYER_SPECS["mamba2"]), ["mixer"], CONFIG, CPU)
    return builder.build(0, two_requests()).num_states  # E
