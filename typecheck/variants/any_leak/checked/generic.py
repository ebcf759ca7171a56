"""The name of a back end is read from a configuration file, whose values have no type.

Right: the value is taken as any object, and used as a string only after it was found to be one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

from typecheck.designs.generic.core import Step
from typecheck.designs.generic.runner import new_registry
from typecheck.designs.generic.state import LINEAR
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, STATE_SPEC, two_requests


def backend_name(text: str) -> str:
    settings: Mapping[str, object] = tomllib.loads(text)
    name = settings.get("backend")
    if not isinstance(name, str):
        raise TypeError(f"backend is {name!r}; it must be a string")
    return name


def run() -> object:
    adapter = new_registry().by_name(backend_name("backend = 'linear'"))
    group = adapter.bind_any(STATE_SPEC, [LINEAR.layer("mixer", HEADS)], CONFIG, CPU)
    step = Step()
    group.build(two_requests(), step)
    return sorted(group.layer_names), group.adapter.name
