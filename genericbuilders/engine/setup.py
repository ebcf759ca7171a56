"""From a model folder to an engine that serves it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from genericbuilders.adapter import Adapter, AttentionAdapter, BindError, Group, Layer
from genericbuilders.backends.cross import ENCODER_ROWS
from genericbuilders.backends.fast_prefill import LOGITS_TOKENS
from genericbuilders.cache import (
    BlockPool,
    CachePlan,
    KVCacheCoordinator,
    PoolStrategy,
    allocate_kv_caches,
    allocate_shared_kv_caches,
    make_manager,
    plan_caches,
    with_sharing_layers,
    zero_blocks,
)
from genericbuilders.config import CommonPrefixRule, EngineConfig, KVCacheLayout
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.runner import ModelRunner
from genericbuilders.engine.sharing import check_shared_caches
from genericbuilders.keys import Key
from genericbuilders.metadata import IS_PREFILLING
from genericbuilders.model import EncoderModel, LoadedModel, LoadError, LoadOptions, Model, ModelLoader, PlacedLayer
from genericbuilders.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    KVCacheGroupSpec,
    KVCacheSpec,
    KVQuantMode,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
    iter_layer_specs,
    promote_to_full,
)

__all__ = ["EngineOptions", "EngineSetup", "bind_groups", "build_engine", "load_model", "plan_model", "prepare"]

_Members: TypeAlias = Mapping[tuple[Adapter, KVCacheSpec], Sequence[Layer]]
JSON = dict[str, "JSON"] | list["JSON"] | str | int | float | bool | None
# Of the memory that is free when an engine is made, the part that its caches take at most, if not told otherwise.
FREE_MEMORY_SHARE = 0.25


@dataclass(frozen=True)
class EngineOptions:
    """How to serve a model.

    Attributes:
        block_size: tokens in one cache block.
        num_blocks: blocks in each attention group's pool; ``None`` takes what `max_num_seqs` requests of full length
            need, within a quarter of the free memory. Pools of states follow `max_num_seqs`.
        max_num_batched_tokens: tokens in one step.
        max_num_seqs: requests in one step.
        max_model_len: tokens in one request; ``None`` takes what the model reaches.
        enable_prefix_caching: keep full blocks for later requests with the same prefix.
        hybrid_kv_cache: let layers that attend over a window or a chunk give blocks back; without it they keep all
            blocks, and still attend over what they did. States stay states either way.
        common_prefix_rule: see `EngineConfig`.
    """

    block_size: int = 16
    num_blocks: int | None = None
    max_num_batched_tokens: int = 512
    max_num_seqs: int = 64
    max_model_len: int | None = None
    enable_prefix_caching: bool = True
    hybrid_kv_cache: bool = True
    common_prefix_rule: CommonPrefixRule | None = None


@dataclass(frozen=True)
class EngineSetup:
    """A model bound to its back ends, and the plan of its caches; nothing is allocated yet.

    Attributes:
        loaded: the model and its tokenizer.
        config: the run's settings.
        groups: the model's layers, each bound to its back end; those that only read another group's caches come last.
        plan: the blocks of each group that has caches.
    """

    loaded: LoadedModel
    config: EngineConfig
    groups: Sequence[Group]
    plan: CachePlan

    def start(self) -> Engine:
        """Allocate the caches, and put an engine around them.

        Raises:
            ValueError: a cache's shape or layout does not fit its pages, or a pool has no block beside those that all
                requests share.
            NoManagerError: no cache manager serves a layer's spec.
            MissingSinksError: a layer's sinks were not set.
        """
        storing = [group for group in self.groups if group.stored_layers]
        shared = self.plan.strategy is PoolStrategy.ONE_POOL
        counts = self.plan.num_blocks
        pools = [BlockPool(counts[0])] * len(counts) if shared else [BlockPool(count) for count in counts]
        managers = [
            make_manager(group.kv_cache_spec, pool, self.config) for group, pool in zip(storing, pools, strict=True)
        ]
        caches = with_sharing_layers(self._allocate(storing), self.groups)
        for group, manager in zip(storing, managers, strict=True):
            if manager.shared_blocks:
                group.fill_shared_blocks(caches, manager.shared_blocks)

        def clear(group: int, block_ids: Sequence[int]) -> None:
            zero_blocks(storing[group], caches, block_ids)

        coordinator = KVCacheCoordinator(
            managers, enable_prefix_caching=self.config.enable_prefix_caching, clear=clear if shared else None
        )
        runner = ModelRunner(self.loaded.model, self.config, self.groups, caches, coordinator)
        return Engine(runner, self.loaded.tokenizer)

    def _allocate(self, groups: Sequence[Group]) -> Mapping[Layer, Tensor]:
        device = self.loaded.model.device
        if self.plan.strategy is PoolStrategy.ONE_POOL:
            first = self.plan.groups[0]
            return allocate_shared_kv_caches(groups, first.num_blocks, first.page_bytes, device)
        return allocate_kv_caches(groups, self.plan.num_blocks, device)


def load_model(path: Path, loaders: Sequence[ModelLoader], options: LoadOptions) -> LoadedModel:
    """Load the model in folder ``path`` with the loader that serves its architecture.

    Raises:
        LoadError: there is no such folder, it has no readable ``config.json``, no loader serves the architecture, or
            the one that does ignores ``options.kv_cache_dtype`` or ``options.attention``.
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
            loaded = loader.load(path, options)
            _check_modes(loaded, loader, options.kv_cache_dtype)
            _check_attention(loaded, loader, options.attention)
            return loaded
    served = sorted({name for loader in loaders for name in loader.architectures()})
    raise LoadError(
        f"{path} holds a model of architecture {', '.join(architectures) or '(config.json names none)'}, which no "
        f"adapter serves; served are: {', '.join(served) or 'none, since no model loader is installed'}"
    )


def _check_modes(loaded: LoadedModel, loader: ModelLoader, mode: KVQuantMode) -> None:
    """Refuse a model whose caches are not in the mode that was asked for."""
    for placed in loaded.model.layers:
        for spec in iter_layer_specs(placed.kv_cache_spec):
            if isinstance(spec, AttentionSpec) and mode not in (KVQuantMode.NONE, spec.kv_quant_mode):
                raise LoadError(
                    f"the cache of layer {placed.layer.name!r} is in mode {spec.kv_quant_mode.name}, though "
                    f"kv_cache_dtype is {mode.name}: the loader {loader.name!r} does not quantise it; leave it out"
                )


def _check_attention(loaded: LoadedModel, loader: ModelLoader, attention: AttentionAdapter | None) -> None:
    """Refuse a model without a layer on the back end that was asked for."""
    layers = [placed.layer for placed in loaded.model.layers]
    if attention is not None and layers and not any(layer.adapter is attention for layer in layers):
        raise LoadError(
            f"no layer runs on {attention.name!r}, which was asked for: {layers[0].name!r} runs on "
            f"{layers[0].adapter.name!r}, as the loader {loader.name!r} chose; leave the option out"
        )


def build_engine(loaded: LoadedModel, options: EngineOptions) -> Engine:
    """Bind the model's layers, allocate their caches, and put an engine around them.

    Raises:
        ValueError: an option is out of its range, the model's context is shorter than asked for, or the memory is too
            small for its caches.
        BindError: a layer's spec and back end do not belong together.
        NoManagerError: no cache manager serves a layer's spec.
    """
    return prepare(loaded, options).start()


def prepare(loaded: LoadedModel, options: EngineOptions) -> EngineSetup:
    """Bind the model's layers and plan their caches; see `build_engine`."""
    model, config = loaded.model, _engine_config(loaded.model, options)
    members = _members(model, options.hybrid_kv_cache)
    always: tuple[Key, ...] = (IS_PREFILLING, LOGITS_TOKENS)
    provided = always if model.encoder is None else (*always, ENCODER_ROWS)
    groups = _bind(members, model, config, provided)
    return EngineSetup(loaded, config, groups, _plan(members, model, config))


def plan_model(model: Model, options: EngineOptions) -> CachePlan:
    """The plan of a model's caches, which `prepare` makes too: without binding or allocating anything.

    Raises:
        ValueError: an option is out of its range, or the memory is too small.
        BindError: a layer cannot keep all blocks, though it has to.
    """
    return _plan(_members(model, options.hybrid_kv_cache), model, _engine_config(model, options))


def _plan(members: _Members, model: Model, config: EngineConfig) -> CachePlan:
    stored = [(spec, _stored_names(layers)) for (_, spec), layers in members.items()]
    specs = [KVCacheGroupSpec(names, spec) for spec, names in stored if names]
    # Pages of a shared pool are padded, which only this layout can hold.
    may_share = all(placed.layer.config.kv_cache_layout is KVCacheLayout.BLOCK_FIRST for placed in model.layers)
    return plan_caches(specs, config, int(_free_bytes(model.device) * FREE_MEMORY_SHARE), may_share=may_share)


def _stored_names(layers: Sequence[Layer]) -> tuple[str, ...]:
    return tuple(layer.name for layer in layers if layer.cache_owner is layer)


def bind_groups(
    model: Model | EncoderModel, config: EngineConfig, provided: Collection[Key] = (), *, hybrid_kv_cache: bool = True
) -> list[Group]:
    """Bind the model's layers, those of one adapter and one spec together, in the order of their first layers.

    Groups without a cache of their own, whose layers all read another group's, come behind all others. Adapters are
    told apart by identity, never by name.

    Args:
        model: whose layers.
        config: the run's settings.
        provided: the inputs beyond the batch that the caller puts into ``common.inputs``.
        hybrid_kv_cache: see `EngineOptions`.

    Raises:
        BindError: a layer's spec and back end do not belong together, a layer cannot keep all blocks, or cannot share
            the cache that it is to share.
    """
    return _bind(_members(model, hybrid_kv_cache), model, config, provided)


def _bind(
    members: _Members, model: Model | EncoderModel, config: EngineConfig, provided: Collection[Key] = ()
) -> list[Group]:
    return [
        adapter.bind_any(spec, layers, config, model.device, provided) for (adapter, spec), layers in members.items()
    ]


def _members(model: Model | EncoderModel, hybrid_kv_cache: bool) -> _Members:
    """The layers of each group, by back end and spec, in the order of `bind_groups`."""
    specs = {placed.layer: _layer_spec(placed, hybrid_kv_cache) for placed in model.layers}
    check_shared_caches(specs)
    members: dict[tuple[Adapter, KVCacheSpec], list[Layer]] = {}
    for layer, spec in specs.items():
        members.setdefault((layer.adapter, spec), []).append(layer)
    return dict(sorted(members.items(), key=lambda each: all(layer.cache_owner is not layer for layer in each[1])))


def _layer_spec(placed: PlacedLayer, hybrid_kv_cache: bool) -> KVCacheSpec:
    """The spec that the layer runs with: its own, taken out of a wrapper and promoted if it is to keep all blocks."""
    name, spec = placed.layer.name, placed.kv_cache_spec
    if isinstance(spec, UniformTypeKVCacheSpecs):
        if name not in spec.kv_cache_specs:
            raise BindError(f"layer {name!r} is not among those that its spec wraps: {sorted(spec.kv_cache_specs)}")
        spec = spec.kv_cache_specs[name]
    if hybrid_kv_cache or not isinstance(spec, SlidingWindowSpec | ChunkedLocalAttentionSpec):
        return spec
    try:
        return promote_to_full(spec)
    except TypeError as error:
        raise BindError(f"layer {name!r}: {error}") from None


def _engine_config(model: Model, options: EngineOptions) -> EngineConfig:
    max_model_len = model.max_model_len if options.max_model_len is None else options.max_model_len
    if max_model_len > model.max_model_len:
        raise ValueError(f"max_model_len is {max_model_len}; the model's positions reach {model.max_model_len}")
    return EngineConfig(
        max_model_len=max_model_len,
        max_num_seqs=min(options.max_num_seqs, max(1, options.max_num_batched_tokens)),
        max_num_batched_tokens=options.max_num_batched_tokens,
        block_size=options.block_size,
        num_blocks=options.num_blocks,
        dtype=model.dtype,
        enable_prefix_caching=options.enable_prefix_caching,
        common_prefix_rule=options.common_prefix_rule,
        layers={placed.layer.name: placed.layer.config for placed in model.layers},
    )


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _architectures(config: JSON) -> list[str]:
    named = config.get("architectures") if isinstance(config, dict) else None
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
