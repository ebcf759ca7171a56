"""The runner binds layers from a table in which an encoder-only layer has ``None``.

Right: it drops that layer before.
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import Group, Layer
from typecheck.designs.generic.state import LINEAR
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, LAYER_SPECS


def run() -> object:
    layers: list[Layer] = [FULL.layer("encoder", HEADS), FULL.layer("full", HEADS), LINEAR.layer("linear", HEADS)]
    groups: list[Group] = []
    for layer in layers:
        spec = LAYER_SPECS[layer.name]
        if spec is None:
            continue
        groups.append(layer.adapter.bind_any(spec, [layer], CONFIG, CPU))
    return [group.kv_cache_spec.page_size_bytes for group in groups]
