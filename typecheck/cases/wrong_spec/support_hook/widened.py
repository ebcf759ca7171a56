"""To choose a graph mode before there are groups, full attention's hook is asked about the state layers' spec.

At run time: wrong: 'UNIFORM_BATCH'; right: 'ALWAYS'
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, STATE_SPEC
from typecheck.designs.widened.attention import FullBuilder


def run() -> object:
    full = FullBuilder.get_cudagraph_support(CONFIG, STATE_SPEC)  # E
    return full.name
