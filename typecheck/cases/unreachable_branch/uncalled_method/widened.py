"""The runner tests a group's graph support and forgets to call it, so that no group ever runs eagerly.

At run time: wrong: ['graph']; right: ['eager']
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.shared.batch import STATE_SPEC
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.state import LinearBackend


def modes(groups: Sequence[AttentionGroup]) -> list[str]:
    return ["graph" if group.cudagraph_support else "eager" for group in groups]  # E


def run() -> object:
    return modes([place(LinearBackend, STATE_SPEC)])
