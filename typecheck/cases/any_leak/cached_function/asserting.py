"""Groups are made once for each spec by a function under `functools.cache`, and it is called with the spec of another
back end.

At run time: AssertionError:
"""

from __future__ import annotations

from functools import cache

from genericbuilders.specs import MambaSpec
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.state import Mamba2Backend
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests


@cache
def state_group(spec: MambaSpec) -> AttentionGroup:
    return AttentionGroup(Mamba2Backend, spec, ["mixer"], CONFIG, CPU)


def run() -> object:
    group = state_group(FULL_SPEC)  # E
    return group.build(two_requests())
