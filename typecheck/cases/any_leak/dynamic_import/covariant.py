"""The back end is imported by the name that a configuration gives, and gets the spec of another.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from importlib import import_module

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS


def run() -> object:
    adapter = import_module("typecheck.designs.covariant.state").MAMBA2
    return adapter.bind(FULL_SPEC, [adapter.layer("mixer", HEADS)], CONFIG, CPU)  # E
