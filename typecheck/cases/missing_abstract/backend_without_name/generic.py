"""The author of a back end forgets to give it the name that configurations call it by.

At run time: TypeError: BackendAdapter.__init__() missing 1 required positional argument: 'name'
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FullBuilder
from typecheck.designs.generic.core import BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.shared.batch import FULL_SPEC
from typecheck.designs.shared.kernels import FullImpl


def run() -> object:
    ring = BackendAdapter(builder=FullBuilder, impl=FullImpl)  # E
    group, _ = place(ring, FULL_SPEC)
    return group.layer_names
