"""A layer that shares another one's cache reads what was built for that one.

Right: both layers are of one back end and see the same blocks.
"""

from __future__ import annotations

from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, two_requests


def run() -> object:
    step = dict(place(FullBackend, FULL_SPEC).build(two_requests()))
    step["sharing"] = step["full"]
    return Attention("sharing", FullBackend).forward(step).sum().item()
