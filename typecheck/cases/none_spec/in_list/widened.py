"""The runner collects the specs of all layers, an encoder-only layer's `None` among them, and asks for managers.

At run time: NoManagerError: no manager serves a NoneType
"""

from __future__ import annotations

from collections.abc import Sequence

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.shared.batch import LAYER_SPECS, new_pool
from typecheck.designs.widened.managers import SingleTypeKVCacheManager, make_manager


def managers_for(specs: Sequence[KVCacheSpec]) -> list[SingleTypeKVCacheManager]:
    return [make_manager(spec, new_pool()) for spec in specs]


def run() -> object:
    specs = [LAYER_SPECS[name] for name in ("full", "mamba2", "encoder")]
    return [manager.blocks_for_longest(64) for manager in managers_for(specs)]  # E
