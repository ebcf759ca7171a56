"""The back end is imported by the name that a configuration gives, and gets the spec of another.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from importlib import import_module

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests


def built(module: str) -> object:
    builder = import_module(module).Mamba2Builder(FULL_SPEC, ["mixer"], CONFIG, CPU)  # E
    return builder.build(0, two_requests())


def run() -> object:
    return built("typecheck.designs.widened.state")
