"""A helper that is true for some windows only is declared with TypeIs: for all others the checker believes 'no
window'.

At run time: AttributeError: 'SlidingWindowSpec' object has no attribute 'attention_chunk_size'
"""

from __future__ import annotations

from typing_extensions import TypeIs

from genericbuilders.specs import FullAttentionSpec, SlidingWindowSpec
from typecheck.designs.shared.batch import WINDOW_SPEC


def has_short_window(spec: FullAttentionSpec | SlidingWindowSpec) -> TypeIs[SlidingWindowSpec]:  # E
    return isinstance(spec, SlidingWindowSpec) and spec.sliding_window < 8


def attended(spec: FullAttentionSpec | SlidingWindowSpec, num_tokens: int) -> int:
    if has_short_window(spec):
        return min(num_tokens, spec.sliding_window)
    return num_tokens if spec.attention_chunk_size is None else min(num_tokens, spec.attention_chunk_size)


def run() -> object:
    return attended(WINDOW_SPEC, 64)
