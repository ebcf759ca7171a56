"""The runner asks whether a group keeps a window after it has asked for attention of any kind, which a window is.

At run time: wrong: 64; right: 8
"""

from __future__ import annotations

from genericbuilders.specs import AttentionSpec, SlidingWindowSpec
from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.layers import place
from typecheck.designs.shared.batch import WINDOW_SPEC


def kept_tokens(group: AttentionGroup, num_tokens: int) -> int:
    spec = group.kv_cache_spec
    if isinstance(spec, AttentionSpec):
        return num_tokens
    if isinstance(spec, SlidingWindowSpec):  # E
        return min(num_tokens, spec.sliding_window)  # E?
    return 1


def run() -> object:
    return kept_tokens(place(FullBackend, WINDOW_SPEC), 64)
