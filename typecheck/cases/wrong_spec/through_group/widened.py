"""The runner puts a gated-delta-rule layer into a group with the full layers' spec.

At run time: nothing: its builder never reads the spec; its cache is laid out for keys and values
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.runner import Runner
from typecheck.designs.widened.state import GDNBackend


def run() -> object:
    runner = Runner(
        [
            AttentionGroup(FullBackend, FULL_SPEC, ["layers.3.attn"], CONFIG, CPU),
            AttentionGroup(GDNBackend, FULL_SPEC, ["layers.0.mixer"], CONFIG, CPU),  # E
        ]
    )
    return runner.build(two_requests())
