"""The back end is imported by the name that a configuration gives, and gets the spec of another.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from importlib import import_module

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS


def bound(module: str) -> object:
    adapter = import_module(module).MAMBA2
    return adapter.bind(FULL_SPEC, [adapter.layer("mixer", HEADS)], CONFIG, CPU)  # E


def run() -> object:
    return bound("typecheck.designs.generic.state")
