"""To choose a graph mode before there are groups, full attention's hook is asked about the state layers' spec.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typecheck.designs.asserting.attention import FullBuilder
from typecheck.designs.shared.batch import CONFIG, STATE_SPEC


def run() -> object:
    full = FullBuilder.get_cudagraph_support(CONFIG, STATE_SPEC)  # E
    return full.name
