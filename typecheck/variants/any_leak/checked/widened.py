"""The name of a back end is read from a configuration file, whose values have no type.

Right: the value is taken as any object, and used as a string only after it was found to be one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.runner import new_registry


def backend_name(text: str) -> str:
    settings: Mapping[str, object] = tomllib.loads(text)
    name = settings.get("backend")
    if not isinstance(name, str):
        raise TypeError(f"backend is {name!r}; it must be a string")
    return name


def run() -> object:
    backend = new_registry()[backend_name("backend = 'linear'")]
    group = AttentionGroup(backend, STATE_SPEC, ["mixer"], CONFIG, CPU)
    return sorted(group.build(two_requests())), group.backend.get_name()
