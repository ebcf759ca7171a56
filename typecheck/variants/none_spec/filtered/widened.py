"""The runner binds layers from a table in which an encoder-only layer has ``None``.

Right: it drops that layer before.
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, CPU, LAYER_SPECS
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.core import AttentionBackend, AttentionGroup
from typecheck.designs.widened.state import LinearBackend


def run() -> object:
    backends: dict[str, type[AttentionBackend]] = {"encoder": FullBackend, "full": FullBackend, "linear": LinearBackend}
    groups: list[AttentionGroup] = []
    for name, backend in backends.items():
        spec = LAYER_SPECS[name]
        if spec is None:
            continue
        groups.append(AttentionGroup(backend, spec, [name], CONFIG, CPU))
    return [group.kv_cache_spec.page_size_bytes for group in groups]
