"""The runner asks the back end, as a group would, for its graph support, but with another layer's spec.

At run time: wrong: 'UNIFORM_BATCH'; right: 'ALWAYS'
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, STATE_SPEC
from typecheck.designs.widened.attention import FullBackend


def run() -> object:
    support = FullBackend.get_builder_cls().get_cudagraph_support(CONFIG, STATE_SPEC)  # E
    return support.name
