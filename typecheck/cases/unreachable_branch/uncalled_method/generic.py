"""The runner tests a group's graph support and forgets to call it, so that no group ever runs eagerly.

At run time: wrong: ['graph']; right: ['eager']
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.generic.core import Group
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.state import LINEAR
from typecheck.designs.shared.batch import STATE_SPEC


def modes(groups: Sequence[Group]) -> list[str]:
    return ["graph" if group.cudagraph_support else "eager" for group in groups]  # E


def run() -> object:
    return modes([place(LINEAR, STATE_SPEC)[0]])
