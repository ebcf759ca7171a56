"""Layers that share another layer's cache: what the engine checks before it plans, and whose blocks a group reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genericbuilders.adapter import BindError, Group, Layer
from genericbuilders.specs import KVCacheSpec

__all__ = ["cache_groups", "check_shared_caches"]


def check_shared_caches(specs: Mapping[Layer, KVCacheSpec]) -> None:
    """Check each shared cache against the model: whether the target is there, runs before, and holds the same.

    Args:
        specs: what each layer runs with, in the order in which the layers run.

    Raises:
        BindError: a target is no layer of the model, comes later, shares a cache itself, or has another spec, back end,
            head size or layout; both layers are named.
    """
    before: set[Layer] = set()
    for layer, spec in specs.items():
        target = layer.cache_owner
        if target is not layer:
            told = f"layer {layer.name!r} cannot share the cache of layer {target.name!r}"
            if target not in specs:
                raise BindError(f"{told}, which is no layer of the model; it has {[each.name for each in specs]}")
            layer.check_cache()
            if target not in before:
                raise BindError(f"{told}, which comes later and has stored nothing by then")
            if specs[target] != spec:
                raise BindError(f"{told}: its spec is {spec!r}, the other's {specs[target]!r}; they must be equal")
        before.add(layer)


def cache_groups(groups: Sequence[Group]) -> tuple[int, ...]:
    """For each group, the place among ``groups`` of the one in whose blocks its layers' keys and values are.

    That is its own place, unless all its layers share caches: of another back end, which they read.
    """
    stored = {layer: index for index, group in enumerate(groups) for layer in group.stored_layers}
    return tuple(stored[group.layers[0].cache_owner] for group in groups)
