"""The runner makes the class that builders over states share, taking it for the builder of a plain state.

At run time: TypeError: Can't instantiate abstract class BaseMambaMetadataBuilder
"""

from __future__ import annotations

from typecheck.designs.covariant.state import BaseMambaMetadataBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata


def run() -> object:
    builder = BaseMambaMetadataBuilder[Mamba2Metadata](STATE_SPEC, ["mixer"], CONFIG, CPU)  # E
    return builder.build(0, two_requests())
