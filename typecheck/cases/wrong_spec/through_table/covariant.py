"""One row of the model's table of layers pairs linear attention with the full layers' spec.

At run time: BindError: adapter 'linear' takes MambaSpec
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.attention import FULL, MLA
from typecheck.designs.covariant.core import Layer
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.covariant.state import LINEAR, MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, MLA_SPEC, STATE_SPEC, two_requests

TABLE: Final[Sequence[tuple[Layer, KVCacheSpec]]] = [
    (FULL.layer("full", HEADS), FULL_SPEC),
    (MLA.layer("mla", HEADS), MLA_SPEC),
    (LINEAR.layer("linear", HEADS), FULL_SPEC),  # E
    (MAMBA2.layer("mamba2", HEADS), STATE_SPEC),
]


def run() -> object:
    runner = Runner([layer.adapter.bind_any(spec, [layer], CONFIG, CPU) for layer, spec in TABLE])
    return runner.build(two_requests())
