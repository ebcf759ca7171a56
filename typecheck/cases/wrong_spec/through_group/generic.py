"""The runner puts a gated-delta-rule layer into a group with the full layers' spec.

At run time: BindError: adapter 'gdn' takes MambaSpec
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.runner import Runner
from typecheck.designs.generic.state import GDN
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests


def run() -> object:
    runner = Runner(
        [
            FULL.bind(FULL_SPEC, [FULL.layer("layers.3.attn", HEADS)], CONFIG, CPU),
            GDN.bind(FULL_SPEC, [GDN.layer("layers.0.mixer", HEADS)], CONFIG, CPU),  # E
        ]
    )
    return runner.build(two_requests())
