"""The drafter takes its Mamba2 layer's spec from the target's first group, which is full attention.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.core import Step
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.covariant.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata


def draft_metadata(target: Runner) -> Mamba2Metadata:
    spec = target.groups[0].kv_cache_spec
    group = MAMBA2.bind(spec, [MAMBA2.layer("draft.mixer", HEADS)], CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return group.metadata(step)


def run() -> object:
    full, _ = place(FULL, FULL_SPEC)
    mamba2, _ = place(MAMBA2, STATE_SPEC)
    return draft_metadata(Runner([full, mamba2]))
