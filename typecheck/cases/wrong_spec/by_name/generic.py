"""The configuration names the wrong back end for a layer whose spec the model has stated.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.runner import new_registry
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS

CHOSEN: Final[Mapping[str, str]] = {"full": "mamba2"}  # E


def run() -> object:
    adapter = new_registry().by_name(CHOSEN["full"])
    group = adapter.bind_any(FULL_SPEC, [FULL.layer("full", HEADS)], CONFIG, CPU)
    return group.cudagraph_support()
