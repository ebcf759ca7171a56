"""The runner asks the back end, as a group would, for its graph support, but with another layer's spec.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.shared.batch import CONFIG, STATE_SPEC


def run() -> object:
    support = FullBackend.get_builder_cls().get_cudagraph_support(CONFIG, STATE_SPEC)  # E
    return support.name
