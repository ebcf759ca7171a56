"""The drafter takes its Mamba2 layer's spec from the target's first group, which is full attention.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.runner import Runner
from typecheck.designs.widened.state import Mamba2Backend, Mamba2Builder


def draft_metadata(target: Runner) -> Mamba2Metadata:
    spec = target.groups[0].kv_cache_spec
    builder = Mamba2Builder(spec, ["draft.mixer"], CONFIG, CPU)  # E
    return builder.build(0, two_requests())


def run() -> object:
    return draft_metadata(Runner([place(FullBackend, FULL_SPEC), place(Mamba2Backend, STATE_SPEC)]))
