"""The runner sizes its memory by the pages of all layers, and one of them is encoder-only and has no spec.

At run time: AttributeError: 'NoneType' object has no attribute 'page_size_bytes'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.shared.batch import LAYER_SPECS


def pool_bytes(layer_names: Sequence[str], num_blocks: int) -> int:
    return sum(num_blocks * LAYER_SPECS[name].page_size_bytes for name in layer_names)  # E


def run() -> object:
    return pool_bytes(["full", "mamba2", "encoder"], 32)
