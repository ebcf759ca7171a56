"""From the options of ``generate`` to an engine. Everything that can be refused is refused before a model is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from genericbuilders.adapter import Adapter, AttentionAdapter
from genericbuilders.backends import BUILT_IN
from genericbuilders.cache import CachePlan
from genericbuilders.cli.errors import UserError, memory_errors, tell
from genericbuilders.config import EngineConfig
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.setup import EngineOptions, load_model, plan_model, prepare
from genericbuilders.model import LoadedModel, LoadError, LoadOptions, Model, ModelLoader
from genericbuilders.plugins import Discovery, discover
from genericbuilders.specs import (
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    KVCacheSpec,
    KVQuantMode,
    MambaCacheMode,
    MambaSpec,
    iter_layer_specs,
)

__all__ = ["Plan", "describe_caches", "make_engine", "make_plan", "start"]

BUFFERS_MEND = "lower --num-blocks, --max-num-seqs or --max-num-batched-tokens"
MODEL_MEND = "use a smaller model, or --dtype bfloat16"


@dataclass(frozen=True)
class Plan:
    """What to load and how to serve it, checked as far as it can be without the model.

    Attributes:
        model: the model's folder; ``None`` for the default model.
        load: how to load it.
        engine: how to serve it.
        loaders: who may load it.
        backend: the back end that was asked for: of attention layers if ``load.attention`` is it, else of all layers.
    """

    model: Path | None
    load: LoadOptions
    engine: EngineOptions
    loaders: Sequence[ModelLoader]
    backend: Adapter | None


def make_plan(
    model: Path | None,
    device: str,
    dtype: str,
    options: EngineOptions,
    backend: str | None,
    mamba_cache_mode: MambaCacheMode = "none",
    mamba_block_size: int | None = None,
    kv_cache_dtype: str = "auto",
    *,
    fast_prefill: bool = True,
) -> Plan:
    """Check the options and look for adapters.

    Args:
        model: the model's folder; ``None`` takes the default model.
        device: ``auto``, ``cpu`` or ``cuda``.
        dtype: ``auto``, or the name of one of torch's.
        options: how to serve.
        backend: the name of a back end: of the model's attention layers if it is one of attention, else the one that
            all layers must have; ``None`` takes what the loader chooses.
        mamba_cache_mode: which states of a request state-space layers keep.
        mamba_block_size: tokens between two of them; ``None`` takes the block size.
        kv_cache_dtype: ``auto``, ``fp8``, or the name of a `KVQuantMode` in small letters.
        fast_prefill: see `LoadOptions`.

    Raises:
        UserError: an option is out of its range, there is no such device, or the back end cannot serve a decoder.
        DuplicateAdapterError: two adapters have one name.
        NoBackendError: there is no back end of that name.
    """
    try:
        # Whether the model reaches that far, it says itself; all else can be checked now.
        EngineConfig(
            max_model_len=1 if options.max_model_len is None else options.max_model_len,
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=options.max_num_batched_tokens,
            block_size=options.block_size,
            num_blocks=options.num_blocks,
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    if mamba_block_size is not None and mamba_block_size < 1:
        raise UserError(f"mamba_block_size is {mamba_block_size}; it must be at least 1")
    found = discover(BUILT_IN)
    adapter = None if backend is None else _backend(backend, found)
    load = LoadOptions(
        _device(device),
        None if dtype == "auto" else _dtype(dtype),
        options.block_size,
        mamba_cache_mode,
        mamba_block_size,
        _quant_mode(kv_cache_dtype),
        fast_prefill,
        adapter if isinstance(adapter, AttentionAdapter) else None,
    )
    for failure in found.failures:
        tell(f"entry point {failure.entry_point} was left out: {failure.reason}", "warning", "yellow")
    return Plan(model, load, options, found.model_loaders, adapter)


def start(plan: Plan, progress: Callable[[str], None], planned: Callable[[CachePlan], None] | None = None) -> Engine:
    """Load the plan's model, and make the engine that serves it.

    Args:
        plan: what to load.
        progress: told, in a few words, what is going on.
        planned: told how the caches' memory is used, before it is taken.

    Raises:
        UserError: the model or its caches do not fit into memory, or its layers have another back end than was asked
            for.
        LoadError: it cannot be loaded.
        BindError: its layers and their back end do not belong together.
    """
    path = plan.model or _default_model(plan.loaders, progress)
    progress(f"loading {path}")
    with memory_errors(f"the model {path}", MODEL_MEND):
        loaded = load_model(path, plan.loaders, plan.load)
    return make_engine(loaded, plan, planned)


def make_engine(loaded: LoadedModel, plan: Plan, planned: Callable[[CachePlan], None] | None = None) -> Engine:
    """The engine that serves a loaded model; see `start`."""
    # A back end of attention was given to the loader, whose model has a layer on it.
    if plan.backend is not None and plan.load.attention is None:
        _check_backend(loaded.model, plan.backend)
    try:
        if plan.engine.num_blocks is not None:
            _check_pool(loaded.model, plan.engine, plan.engine.num_blocks)
        with memory_errors("the caches and buffers", BUFFERS_MEND):
            setup = prepare(loaded, plan.engine)
            if planned is not None:
                planned(setup.plan)
            return setup.start()
    except ValueError as error:
        raise UserError(str(error)) from None


def describe_caches(engine: Engine) -> str:
    """The blocks of each group's pool, and the memory that all caches take."""
    runner = engine.runner
    # Caches of groups that share a pool lie in the same memory.
    storages = {cache.data_ptr(): cache.untyped_storage().nbytes() for cache in runner.kv_caches.values()}
    pools = dict.fromkeys(f"{manager.pool.num_blocks} {manager.unit}" for manager in runner.coordinator.managers)
    return f"{' + '.join(pools)}, {_size(sum(storages.values()))}"


def _device(name: str) -> torch.device:
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        built = torch.version.cuda is not None or torch.version.hip is not None
        why = "finds no device or no driver" if built else "is built without CUDA"
        raise UserError(f"--device cuda: this torch ({torch.__version__}) {why}; use --device cpu")
    return torch.device("cuda" if there and name != "cpu" else "cpu")


def _dtype(name: str) -> torch.dtype:
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def _quant_mode(name: str) -> KVQuantMode:
    short = {"auto": KVQuantMode.NONE, "fp8": KVQuantMode.FP8_PER_TENSOR}
    return short[name] if name in short else KVQuantMode[name.upper()]


def _backend(name: str, found: Discovery) -> Adapter:
    adapter = found.registry.by_name(name)
    reason = adapter.unavailable()
    if reason is not None:
        raise UserError(f"--backend {name}: it {reason}")
    if isinstance(adapter, AttentionAdapter):
        if adapter.reads is not None:
            raise UserError(
                f"--backend {name}: it stores nothing, but reads what {adapter.reads.name!r} has stored, so that a "
                f"decoder's own layers cannot run on it; give --backend {adapter.reads.name}"
            )
        if all(issubclass(taken, CrossAttentionSpec | EncoderOnlyAttentionSpec) for taken in adapter.spec_types):
            takes = " and ".join(taken.__name__ for taken in adapter.spec_types)
            raise UserError(
                f"--backend {name}: it takes {takes} alone, so that a decoder's layers, which attend over their own "
                "tokens, cannot run on it; give another back end"
            )
    return adapter


def _check_backend(model: Model, backend: Adapter) -> None:
    """Refuse a model whose layers are not all on the back end that was asked for."""
    others = [placed.layer for placed in model.layers if placed.layer.adapter is not backend]
    if not others:
        return
    first = others[0]
    why = "no layer runs on it: " if len(others) == len(model.layers) else ""
    raise UserError(
        f"--backend {backend.name}: {why}{first.name!r} runs on {first.adapter.name!r}, as its loader chose; leave "
        "--backend out"
    )


def _default_model(loaders: Sequence[ModelLoader], progress: Callable[[str], None]) -> Path:
    for loader in loaders:
        path = loader.default_model(progress)
        if path is not None:
            return path
    names = ", ".join(loader.name for loader in loaders)
    why = f"none of the model loaders ({names}) brings a default model" if names else "no model loader is installed"
    raise LoadError(f"{why}; give --model DIR, or run: pip install 'genericbuilders[transformers,default-model]'")


def _check_pool(model: Model, options: EngineOptions, num_blocks: int) -> None:
    """Refuse pools that cannot fit, before any part of them is made."""
    plan = plan_model(model, options)
    attention = [group for group in plan.groups if not _keeps_states(group.group.kv_cache_spec)]
    if not attention:
        tell(
            "--num-blocks changes nothing: the model has no attention layers; --max-num-seqs decides",
            "warning",
            "yellow",
        )
    if model.device.type == "cuda":
        total = torch.cuda.mem_get_info(model.device)[1]
    else:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if plan.total_bytes <= total:
        return
    block = sum(group.block_bytes for group in attention)
    states = plan.total_bytes - sum(group.total_bytes for group in attention)
    if not block or states + 2 * block > total:
        raise UserError(
            f"the states of --max-num-seqs {options.max_num_seqs} requests need {_size(states)} of cache; "
            f"{model.device} has {_size(total)}, so lower --max-num-seqs"
        )
    raise UserError(
        f"--num-blocks {num_blocks} needs {_size(plan.total_bytes)} of cache ({block} bytes a block in all attention "
        f"layers together{f', and {_size(states)} of states' if states else ''}); {model.device} has {_size(total)}, "
        f"so at most {(total - states) // block} blocks"
    )


def _keeps_states(spec: KVCacheSpec) -> bool:
    return any(isinstance(layer, MambaSpec) for layer in iter_layer_specs(spec))


def _size(num_bytes: int) -> str:
    value, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"
