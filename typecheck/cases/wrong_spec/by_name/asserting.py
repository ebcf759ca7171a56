"""The configuration names the wrong back end for a layer whose spec the model has stated.

At run time: AssertionError:
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.runner import new_registry
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests

CHOSEN: Final[Mapping[str, str]] = {"full": "mamba2"}  # E


def run() -> object:
    backend = new_registry()[CHOSEN["full"]]
    group = AttentionGroup(backend, FULL_SPEC, ["full"], CONFIG, CPU)
    return group.build(two_requests())
