"""The four designs are one API: their programs print the same."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest

from typecheck.corpus import Design

EXPECTED = [
    "full: 256",
    "mla: 3072",
    "flashinfer: 384",
    "mamba2: 6",
    "gdn: 128",
    "linear: 128",
    "paged_tree: 65536",
    "graphs: NEVER",
    "planned heads: 3",
    "moved states: 7, 8",
    "configured full: 512 bytes",
    "configured linear: 40 bytes",
    "FullAttentionSpec: 16 blocks",
    "SlidingWindowSpec: 3 blocks",
    "MambaSpec: 1 blocks",
    "window: 8 tokens",
]


@pytest.mark.parametrize("design", list(Design))
def test_its_program_runs(design: Design) -> None:
    main: Callable[[], list[str]] = importlib.import_module(f"typecheck.designs.{design}.program").main

    assert main() == EXPECTED
