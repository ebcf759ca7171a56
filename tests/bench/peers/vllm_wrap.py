"""Runs under the peer's Python: what builders of vLLM build when wrapped and when called directly, as JSON on stdout.

    PYTHONPATH=.:adapters:tests/support:tests/bench python vllm_wrap.py MODEL_FOLDER

Every builder class that vLLM's modules define, as far as they can be imported here, is constructed twice with the same
settings and spec: by hand, and by `wrap`. Both get the same batches, described by hand in vLLM's terms for the one and in
this library's for the other. A builder that cannot be constructed, or cannot build, without a GPU is listed with the
reason. The batches are those of `batches.py`, those of `state_batches.py`, and a padded one.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import pkgutil
import sys
from pathlib import Path

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from batches import BATCHES, BLOCK_SIZE, make_batch
from state_batches import state_batch
from state_build import builds, common
from state_fields import shown

from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.config import AttentionLayerConfig, EngineConfig, StateLayerConfig
from genericbuilders.keys import TypedMap
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from genericbuilders_vllm import to_vllm_spec, wrap

# Buffers that a kernel fills, and what a kernel's library packs with addresses: they are compared by shape.
SCRATCH = ("softmax_segm_output", "softmax_segm_max", "softmax_segm_expsum", "scheduler_metadata")
# Gives out whole buffers, with whatever is left behind the batch: both calls go to one object.
WHOLE_BUFFERS = ("FlexAttentionMetadataBuilder",)
# What both back ends' metadata have.
FLASH_FIELDS = (
    "num_actual_tokens",
    "max_query_len",
    "query_start_loc",
    "max_seq_len",
    "seq_lens",
    "block_table",
    "slot_mapping",
    "causal",
)
STATE_ROWS = ([(1, 9), (1, 20), (3, 3), (5, 13)], [(1, 4), (1, 1)])
CPU = torch.device("cpu")
SHAPES = ((3, 5), (2, 3, 4))
HEADS = AttentionLayerConfig(4, 2, 64, 64**-0.5)
STATE = StateLayerConfig(SHAPES, (torch.float32, torch.float32), 8)
SPECS = (
    MambaSpec(block_size=1024, shapes=SHAPES, dtypes=(torch.float32, torch.float32)),
    FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=2, head_size=64, dtype=torch.float32),
    SlidingWindowSpec(block_size=BLOCK_SIZE, num_kv_heads=2, head_size=64, dtype=torch.float32, sliding_window=128),
)


def main() -> None:
    """Compare every builder, and say how it went."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints goes to stderr
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.attention.backend import AttentionMetadataBuilder

    from genericbuilders_vllm.base import AttentionMetadataBuilder as TwoParameters

    torch.set_num_threads(1)
    settings = EngineArgs(
        model=sys.argv[1], skip_tokenizer_init=True, dtype="float32", max_model_len=1024, max_num_seqs=1024
    ).create_engine_config()
    settings.cache_config.num_gpu_blocks = 4096
    report = {"equal": [], "different": {}, "unbuilt": {}, "native": native(), "two_parameters": []}
    for builder in classes(AttentionMetadataBuilder):
        name = f"{builder.__module__}.{builder.__qualname__}"
        reasons, wrong = [], None
        for spec in SPECS:
            try:
                wrong = compare(builder, spec, settings)
                break
            except Unbuilt as error:
                reasons.append(str(error))
        if wrong is None:
            report["unbuilt"][name] = reasons
        elif wrong:
            report["different"][name] = wrong
        else:
            report["equal"].append(name)
        if issubclass(builder, TwoParameters):
            report["two_parameters"].append(name)
    print(json.dumps(report), file=answers, flush=True)


class Unbuilt(Exception):
    """A builder does not build here, or its hints exclude the spec."""


def compare(builder: type, spec: KVCacheSpec, settings: object) -> list[str]:
    """The fields in which wrapped and direct builds differ.

    Raises:
        Unbuilt: it cannot be constructed, or builds none of the batches.
    """
    from vllm.config import set_current_vllm_config

    keywords = {"block_table_width": 64} if builder.requires_block_table_width else {}
    made = {}
    try:
        with set_current_vllm_config(settings):
            direct = builder(to_vllm_spec(spec), ["layer"], settings, CPU, **keywords)
        for key, common in described().items():
            try:
                each = direct.build(0, described_there(common))
            except RuntimeError:  # one builder keeps a row of all blocks for each request
                if not made and key.startswith("states"):
                    raise
                continue
            # Written down at once: builders give out buffers that they write to again.
            made[key], kind = plain(each), type(each)
    except Exception as error:
        raise Unbuilt(f"{type(spec).__name__}: {type(error).__name__}: {str(error)[:80]}") from error
    layer_config = STATE if isinstance(spec, MambaSpec) else HEADS
    config = EngineConfig(max_model_len=1024, max_num_seqs=1024, num_blocks=4096, layers={"layer": layer_config})
    wrong = []
    # With the settings of a model, and with settings that are made from this library's.
    for options in ({"vllm_config": settings, "extra": keywords}, {}):
        try:
            adapter = wrap(builder, spec=type(spec), metadata=kind, **options)
        except TypeError as error:
            raise Unbuilt(f"{type(spec).__name__} refused: {error}") from error
        group = adapter.bind(spec, [adapter.layer("layer", layer_config)], config, CPU)
        for key, expected in made.items():
            if builder.__name__ in WHOLE_BUFFERS:
                expected = plain(group.builder.foreign.build(0, described_there(described()[key])))
            got = plain(group.builder.build(0, described()[key]))
            wrong += [f"{key}: {field}" for field in expected if expected[field] != got.get(field)]
    return wrong


def native() -> dict[str, list[str]]:
    """For each back end of this library, the fields in which it and vLLM's builder, wrapped, differ."""
    from vllm.v1.attention.backends import gdn_attn, linear_attn, mamba1_attn, mamba2_attn, short_conv_attn
    from vllm.v1.attention.backends.flash_attn import FlashAttentionMetadata, FlashAttentionMetadataBuilder

    theirs = {
        "mamba1": (mamba1_attn.Mamba1AttentionMetadataBuilder, mamba1_attn.Mamba1AttentionMetadata),
        "mamba2": (mamba2_attn.Mamba2AttentionMetadataBuilder, mamba2_attn.Mamba2AttentionMetadata),
        "gdn": (gdn_attn.GDNAttentionMetadataBuilder, gdn_attn.GDNAttentionMetadata),
        "linear": (linear_attn.LinearAttentionMetadataBuilder, linear_attn.LinearAttentionMetadata),
        "bailing_linear": (
            linear_attn.BailingLinearAttentionMetadataBuilder,
            linear_attn.BailingLinearAttentionMetadata,
        ),
        "short_conv": (short_conv_attn.ShortConvAttentionMetadataBuilder, short_conv_attn.ShortConvAttentionMetadata),
    }
    found = {}
    config = EngineConfig(max_model_len=1024, max_num_seqs=1024, layers={"layer": STATE})
    for name, build in builds().items():
        builder, kind = theirs[name]
        adapter = wrap(builder, spec=MambaSpec, metadata=kind)
        group = adapter.bind(SPECS[0], [adapter.layer("layer", STATE)], config, CPU)
        found[name] = []
        # vLLM's linear builders take the first token of a prompt of one token for a decode.
        rows = STATE_ROWS[:1] if "linear" in name else STATE_ROWS
        for batch in map(common, (*BATCHES.values(), *rows)):
            expected, got = shown(build(batch), name), shown(group.builder.build(0, batch), name)
            found[name] += [field for field in expected if expected[field] != got[field]]
    config = EngineConfig(max_model_len=1024, max_num_seqs=1024, layers={"layer": HEADS})
    ours = FLASH_ATTN.bind(SPECS[1], [FLASH_ATTN.layer("layer", HEADS)], config, CPU)
    adapter = wrap(FlashAttentionMetadataBuilder, spec=FullAttentionSpec, metadata=FlashAttentionMetadata)
    group = adapter.bind(SPECS[1], [adapter.layer("layer", HEADS)], config, CPU)
    found["flash_attn"] = []
    for batch in described().values():
        expected, got = plain(ours.builder.build(0, batch)), plain(group.builder.build(0, batch))
        found["flash_attn"] += [field for field in FLASH_FIELDS if expected[field] != got[field]]
    return found


def classes(base: type) -> list[type]:
    """Every class of builders in vLLM's modules that can be imported and has no abstract method."""
    import vllm.model_executor.layers.attention as layers
    import vllm.models as models
    import vllm.v1.attention.backends as backends

    for package in (backends, layers, models):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            try:
                importlib.import_module(module.name)
            except Exception:  # another device's
                continue
    importlib.import_module("vllm.model_executor.models.extract_hidden_states")
    found, waiting = set(), [base]
    while waiting:
        below = set(waiting.pop().__subclasses__()) - found
        found |= below
        waiting += below
    # The base that migrated builders derive from is none of vLLM's modules.
    concrete = [each for each in found if each.__module__.startswith("vllm.") and not inspect.isabstract(each)]
    return sorted(concrete, key=lambda each: (each.__module__, each.__qualname__))


def described() -> dict[str, CommonAttentionMetadata]:
    """The batches in this library's terms."""
    found = {name: _described(rows) for name, rows in BATCHES.items()}
    for name, rows in {"mixed": [(1, 9), (1, 20), (3, 0), (5, 8)], "first tokens": [(1, 4), (1, 0)]}.items():
        found[f"states, {name}"] = state_batch(rows)
    found["states, padded decodes"] = state_batch([(1, 9), (1, 20), (1, 33)], padding=2, padded_tokens=True)
    return found


def _described(rows: list[tuple[int, int]]) -> CommonAttentionMetadata:
    batch = make_batch(rows)
    return CommonAttentionMetadata(
        batch.query_start_loc,
        batch.query_start_loc,
        batch.seq_lens,
        batch.seq_lens,
        batch.num_computed_tokens,
        batch.num_reqs,
        batch.num_actual_tokens,
        batch.max_query_len,
        batch.max_seq_len,
        batch.block_table,
        batch.slot_mapping,
        inputs=TypedMap(),
    )


def described_there(common: CommonAttentionMetadata) -> object:
    """A batch in vLLM's terms, said again without the conversion under test."""
    from vllm.v1.attention.backend import CommonAttentionMetadata as Theirs

    lens = torch.diff(common.query_start_loc_cpu)
    return Theirs(
        query_start_loc=common.query_start_loc,
        query_start_loc_cpu=common.query_start_loc_cpu,
        seq_lens=common.seq_lens,
        seq_lens_cpu_upper_bound=common.seq_lens_cpu,
        num_reqs=common.num_reqs,
        num_actual_tokens=common.num_actual_tokens,
        max_query_len=common.max_query_len,
        max_seq_len=common.max_seq_len,
        block_table_tensor=common.block_table_tensor,
        slot_mapping=common.slot_mapping,
        # As its runner says it: a row whose prompt is not computed yet. Here every decode brings one token.
        is_prefilling=(lens > 1) | ((lens == 1) & (common.num_computed_tokens_cpu == 0)),
    )


def plain(value: object) -> object:
    """``value`` as it stands now, in lists and dictionaries that compare."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), value.tolist()]
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.tolist()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: shape(each) if name in SCRATCH else plain(each) for name, each in fields.items()}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if "Metadata" in type(value).__name__:
        return {name: plain(each) for name, each in vars(value).items()}
    if inspect.isroutine(value):
        return getattr(value, "__qualname__", "")
    return type(value).__qualname__


def shape(value: torch.Tensor | None) -> object:
    """A tensor without its values."""
    return None if value is None else [str(value.dtype), list(value.shape)]


if __name__ == "__main__":
    main()
