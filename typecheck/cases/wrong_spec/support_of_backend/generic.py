"""The runner asks the back end, as a group would, for its graph support, but with another layer's spec.

At run time: BindError: adapter 'full' takes AttentionSpec
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FULL
from typecheck.designs.shared.batch import CONFIG, STATE_SPEC


def run() -> object:
    support = FULL.cudagraph_support(CONFIG, STATE_SPEC)  # E
    return support.name
