"""One row of the model's table of layers pairs linear attention with the full layers' spec.

At run time: nothing: its builder never reads the spec; its cache is laid out for keys and values
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, MLA_SPEC, STATE_SPEC, two_requests
from typecheck.designs.widened.attention import FullBackend, MLABackend
from typecheck.designs.widened.core import AttentionBackend, AttentionGroup
from typecheck.designs.widened.runner import Runner
from typecheck.designs.widened.state import LinearBackend, Mamba2Backend

TABLE: Final[Sequence[tuple[type[AttentionBackend], KVCacheSpec]]] = [
    (FullBackend, FULL_SPEC),
    (MLABackend, MLA_SPEC),
    (LinearBackend, FULL_SPEC),  # E
    (Mamba2Backend, STATE_SPEC),
]


def run() -> object:
    runner = Runner([AttentionGroup(backend, spec, [backend.get_name()], CONFIG, CPU) for backend, spec in TABLE])
    return runner.build(two_requests())
