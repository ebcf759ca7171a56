"""The runner puts a gated-delta-rule layer into a group with the full layers' spec.

At run time: AssertionError:
"""

from __future__ import annotations

from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.runner import Runner
from typecheck.designs.asserting.state import GDNBackend
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests


def run() -> object:
    runner = Runner(
        [
            AttentionGroup(FullBackend, FULL_SPEC, ["layers.3.attn"], CONFIG, CPU),
            AttentionGroup(GDNBackend, FULL_SPEC, ["layers.0.mixer"], CONFIG, CPU),  # E
        ]
    )
    return runner.build(two_requests())
