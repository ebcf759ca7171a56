"""The configuration names the wrong back end for a layer whose spec the model has stated.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.runner import new_registry

CHOSEN: Final[Mapping[str, str]] = {"full": "mamba2"}  # E


def run() -> object:
    backend = new_registry()[CHOSEN["full"]]
    group = AttentionGroup(backend, FULL_SPEC, ["full"], CONFIG, CPU)
    return group.build(two_requests())
