"""From a model folder to an engine that serves it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from genericbuilders.adapter import Adapter, Group, Layer
from genericbuilders.cache import BlockPool, KVCacheCoordinator, allocate_kv_caches, make_manager, num_blocks_for
from genericbuilders.config import EngineConfig
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.runner import ModelRunner
from genericbuilders.keys import Key
from genericbuilders.model import LoadedModel, LoadError, LoadOptions, Model, ModelLoader
from genericbuilders.specs import KVCacheSpec

__all__ = ["EngineOptions", "bind_groups", "build_engine", "load_model"]

JSON = dict[str, "JSON"] | list["JSON"] | str | int | float | bool | None
# Of the memory that is free when an engine is made, the part that its caches take at most, if not told otherwise.
FREE_MEMORY_SHARE = 0.25


@dataclass(frozen=True)
class EngineOptions:
    """How to serve a model.

    Attributes:
        block_size: tokens in one cache block.
        num_blocks: blocks in each group's pool; ``None`` takes what `max_num_seqs` requests of full length need, within
            a quarter of the free memory.
        max_num_batched_tokens: tokens in one step.
        max_num_seqs: requests in one step.
        max_model_len: tokens in one request; ``None`` takes what the model reaches.
        enable_prefix_caching: keep full blocks for later requests with the same prefix.
    """

    block_size: int = 16
    num_blocks: int | None = None
    max_num_batched_tokens: int = 512
    max_num_seqs: int = 64
    max_model_len: int | None = None
    enable_prefix_caching: bool = True


def load_model(path: Path, loaders: Sequence[ModelLoader], options: LoadOptions) -> LoadedModel:
    """Load the model in folder ``path`` with the loader that serves its architecture.

    Raises:
        LoadError: there is no such folder, it has no readable ``config.json``, or no loader serves the architecture.
    """
    if not path.is_dir():
        raise LoadError(f"no model folder at {path}; give the folder that holds config.json and the weights")
    try:
        config: JSON = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LoadError(f"{path} has no config.json, so it is no model folder; give the folder that holds it") from None
    except (ValueError, OSError) as error:
        raise LoadError(f"{path / 'config.json'} cannot be read: {error}") from None
    architectures = _architectures(config)
    for loader in loaders:
        if set(architectures) & set(loader.architectures()):
            return loader.load(path, options)
    served = sorted({name for loader in loaders for name in loader.architectures()})
    raise LoadError(
        f"{path} holds a model of architecture {', '.join(architectures) or '(config.json names none)'}, which no "
        f"adapter serves; served are: {', '.join(served) or 'none, since no model loader is installed'}"
    )


def build_engine(loaded: LoadedModel, options: EngineOptions) -> Engine:
    """Bind the model's layers, allocate their caches, and put an engine around them.

    Raises:
        ValueError: an option is out of its range, or the model's context is shorter than asked for.
        BindError: a layer's spec and back end do not belong together.
        NoManagerError: no cache manager serves a layer's spec.
    """
    model = loaded.model
    max_model_len = model.max_model_len if options.max_model_len is None else options.max_model_len
    if max_model_len > model.max_model_len:
        raise ValueError(f"max_model_len is {max_model_len}; the model's positions reach {model.max_model_len}")
    config = EngineConfig(
        max_model_len=max_model_len,
        max_num_seqs=min(options.max_num_seqs, options.max_num_batched_tokens),
        max_num_batched_tokens=options.max_num_batched_tokens,
        block_size=options.block_size,
        num_blocks=options.num_blocks,
        dtype=model.dtype,
        enable_prefix_caching=options.enable_prefix_caching,
        layers={placed.layer.name: placed.layer.config for placed in model.layers},
    )
    groups = bind_groups(model, config)
    num_blocks = _num_blocks(groups, config) if config.num_blocks is None else config.num_blocks
    managers = [make_manager(group.kv_cache_spec, BlockPool(num_blocks)) for group in groups]
    coordinator = KVCacheCoordinator(managers, enable_prefix_caching=config.enable_prefix_caching)
    caches = allocate_kv_caches(groups, num_blocks, model.device)
    return Engine(ModelRunner(model, config, groups, caches, coordinator), loaded.tokenizer)


def bind_groups(model: Model, config: EngineConfig, provided: Collection[Key] = ()) -> list[Group]:
    """Bind the model's layers, those of one adapter and one spec together, in the order of their first layers.

    Adapters are told apart by identity, never by name.
    """
    members: dict[tuple[Adapter, KVCacheSpec], list[Layer]] = {}
    for placed in model.layers:
        members.setdefault((placed.layer.adapter, placed.kv_cache_spec), []).append(placed.layer)
    return [
        adapter.bind_any(spec, layers, config, model.device, provided) for (adapter, spec), layers in members.items()
    ]


def _num_blocks(groups: Sequence[Group], config: EngineConfig) -> int:
    """As many blocks as all requests at full length could hold, but no more than a share of the free memory has."""
    wanted = max(group.kv_cache_spec.max_resident_blocks(config) for group in groups) * config.max_num_seqs + 1
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    layer_specs = [group.kv_cache_spec for group in groups for _ in group.layers]
    return min(wanted, num_blocks_for(int(free * FREE_MEMORY_SHARE), layer_specs))


def _architectures(config: JSON) -> list[str]:
    named = config.get("architectures") if isinstance(config, dict) else None
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
