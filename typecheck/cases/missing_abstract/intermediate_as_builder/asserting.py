"""The runner makes the class that builders over states share, taking it for the builder of a plain state.

At run time: TypeError: Can't instantiate abstract class BaseMambaMetadataBuilder
"""

from __future__ import annotations

from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import BaseMambaMetadataBuilder, Mamba2Backend
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata


def run() -> object:
    spec = place(Mamba2Backend, STATE_SPEC).builder.kv_cache_spec
    builder = BaseMambaMetadataBuilder[Mamba2Metadata](spec, ["mixer"], CONFIG, CPU)  # E
    return builder.build(0, two_requests())
