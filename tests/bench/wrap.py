"""What wrapping costs: a ``build()`` of vLLM's builders called directly and through `wrap`, on the same batches, in one run.

Both sides have builders of their own with the same settings. The direct side gets a batch that is in vLLM's terms already;
the wrapped side gets it in this library's terms, and describes it anew at each call: no two calls in a row get the same
object, as a runner would hand over. State-space builders have to know which rows are prefilling: once the batch says so,
as to the direct side, and once (`derived`) it is worked out, which the direct side is spared.

The sides take turns, a build each, in one thread. Figures are medians over all builds; a cost is the median of the
differences within a turn, so that whatever else the machine does meanwhile falls on both.

    PYTHONPATH=.:adapters .venv-peer/bin/python tests/bench/wrap.py [--turns 20000] [--json]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from batches import BATCHES, BLOCK_SIZE, make_batch
from typing_extensions import TypeVar

from genericbuilders.builder import AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig, EngineConfig, StateLayerConfig
from genericbuilders.keys import TypedMap
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec
from genericbuilders_vllm import IS_PREFILLING, WrappedAdapter, make_vllm_config, to_vllm_batch, to_vllm_spec, wrap
from genericbuilders_vllm.wrapped import ForeignBuilder

__all__ = ["main"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)

CPU = torch.device("cpu")
HEADS = AttentionLayerConfig(4, 2, 64, 64**-0.5)
STATE = StateLayerConfig(((3, 5), (2, 3, 4)), (torch.float32, torch.float32), 256)
COPIES = 16
Build = Callable[[], object]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20000)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR")
    torch.set_num_threads(1)
    rows: list[dict[str, float | str]] = []
    for name, batch, sides in _sides():
        samples = _take_turns(sides, arguments.turns)
        direct, *others = (statistics.median(sample) for sample in samples)
        costs = [statistics.median(a - b for a, b in zip(each, samples[0], strict=True)) for each in samples[1:]]
        row: dict[str, float | str] = {"builder": name, "batch": batch, "direct": direct, "wrapped": others[0]}
        row |= {"cost": costs[0]} | ({"derived_cost": costs[1]} if len(costs) > 1 else {})
        rows.append(row)
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"torch {torch.__version__}, 1 thread, medians of {arguments.turns} turns, in us\n")
    print("| builder | batch | direct | wrapped | cost | cost, derived |")
    print("|---|---|---|---|---|---|")
    for each in rows:
        derived = each.get("derived_cost")
        told = f"{derived:.2f}" if isinstance(derived, float) else ""
        print(
            f"| {each['builder']} | {each['batch']} | {each['direct']:.1f} | {each['wrapped']:.1f} | "
            f"{each['cost']:.2f} | {told} |"
        )


def _take_turns(sides: Sequence[Build], turns: int) -> list[list[float]]:
    """The microseconds of each build, by side."""
    samples: list[list[float]] = [[] for _ in sides]
    for _ in range(turns // 10):  # warms up
        for side in sides:
            side()
    gc.collect()
    gc.disable()
    try:
        for _ in range(turns):
            for sample, side in zip(samples, sides, strict=True):
                start = time.perf_counter()
                side()
                sample.append((time.perf_counter() - start) * 1e6)
    finally:
        gc.enable()
    return samples


def _sides() -> list[tuple[str, str, list[Build]]]:
    """For each builder and batch: a direct build, a wrapped one, and for states one that derives."""
    from vllm.envs import enable_envs_cache
    from vllm.v1.attention.backends.flash_attn import FlashAttentionMetadata, FlashAttentionMetadataBuilder
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadata, GDNAttentionMetadataBuilder
    from vllm.v1.attention.backends.linear_attn import LinearAttentionMetadata, LinearAttentionMetadataBuilder
    from vllm.v1.attention.backends.mamba1_attn import Mamba1AttentionMetadata, Mamba1AttentionMetadataBuilder

    full = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=2, head_size=64, dtype=torch.float32)
    state = MambaSpec(block_size=1024, shapes=STATE.shapes, dtypes=STATE.dtypes)
    made: list[tuple[str, str, list[Build]]] = []
    flash = wrap(FlashAttentionMetadataBuilder, spec=FullAttentionSpec, metadata=FlashAttentionMetadata)
    made += _pair(flash, full, FlashAttentionMetadataBuilder)
    mamba = wrap(Mamba1AttentionMetadataBuilder, spec=MambaSpec, metadata=Mamba1AttentionMetadata)
    made += _pair(mamba, state, Mamba1AttentionMetadataBuilder)
    linear = wrap(LinearAttentionMetadataBuilder, spec=MambaSpec, metadata=LinearAttentionMetadata)
    made += _pair(linear, state, LinearAttentionMetadataBuilder)
    gdn = wrap(GDNAttentionMetadataBuilder, spec=MambaSpec, metadata=GDNAttentionMetadata)
    made += _pair(gdn, state, GDNAttentionMetadataBuilder)
    enable_envs_cache()
    return made


def _pair(
    adapter: WrappedAdapter[M, S], spec: S, builder: Callable[..., ForeignBuilder]
) -> list[tuple[str, str, list[Build]]]:
    from vllm.config import set_current_vllm_config

    layer = STATE if isinstance(spec, MambaSpec) else HEADS
    config = EngineConfig(max_model_len=1024, max_num_seqs=1024, layers={"layer": layer})
    group = adapter.bind(spec, [adapter.layer("layer", layer)], config, CPU)
    settings = make_vllm_config(config, spec, ["layer"])
    with set_current_vllm_config(settings):
        direct = builder(to_vllm_spec(spec), ["layer"], settings, CPU)
    made: list[tuple[str, str, list[Build]]] = []
    for name, rows in BATCHES.items():
        told = _common(rows, isinstance(spec, MambaSpec))
        sides = [_direct(direct, told), _wrapped(group.builder, told)]
        if isinstance(spec, MambaSpec):
            sides.append(_wrapped(group.builder, replace(told, inputs=TypedMap())))
        made.append((adapter.name.removesuffix("MetadataBuilder"), name, sides))
    return made


def _direct(builder: ForeignBuilder, common: CommonAttentionMetadata) -> Build:
    turns = itertools.cycle([to_vllm_batch(replace(common)) for _ in range(COPIES)])

    def build() -> object:
        batch = next(turns)
        # Kept in the object by a build before; a runner's batch is a new one.
        setattr(batch, "_num_computed_tokens_cache", None)  # noqa: B010 - no attribute that the stubs know
        return builder.build(0, batch)

    return build


def _wrapped(builder: AttentionMetadataBuilder[M, S], common: CommonAttentionMetadata) -> Build:
    turns = itertools.cycle([replace(common) for _ in range(COPIES)])
    return lambda: builder.build(0, next(turns))


def _common(rows: Sequence[tuple[int, int]], states: bool) -> CommonAttentionMetadata:
    batch = make_batch(rows)
    lens = torch.diff(batch.query_start_loc)
    inputs = TypedMap()
    table = batch.block_table
    if states:
        inputs.put(IS_PREFILLING, (lens > 1) | (batch.num_computed_tokens == 0))
        table = torch.arange(1, len(rows) + 1, dtype=torch.int32).view(-1, 1)
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
        table,
        batch.slot_mapping,
        inputs=inputs,
    )


if __name__ == "__main__":
    main()
