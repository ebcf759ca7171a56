"""``genericbuilders backends``: what there is to run on, and why not."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from genericbuilders.cli.errors import reported

if TYPE_CHECKING:
    from genericbuilders.adapter import Adapter
    from genericbuilders.builder import AttentionCGSupport
    from genericbuilders.plugins import Discovery
    from genericbuilders.specs import KVCacheSpec

__all__ = ["backends"]

MIN_FILE_WIDTH = 200


@dataclass(frozen=True)
class _Row:
    """One adapter. ``cudagraph_support`` holds every answer to an example of its specs; empty: it depends."""

    name: str
    spec_types: list[str]
    metadata_type: str
    cudagraph_support: list[str]
    available: bool
    reason: str | None


@dataclass(frozen=True)
class _Kernels:
    """The kernels that a CPU runs, and why not the compiled ones."""

    name: str
    reason: str | None


def backends(json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False) -> None:
    """List the back ends, the plug-ins that failed, and the kernels in use on this CPU."""
    out = sys.stdout
    with reported(), redirect_stdout(sys.stderr):
        from genericbuilders.backends import BUILT_IN
        from genericbuilders.plugins import discover

        found = discover(BUILT_IN)
        rows = [_row(adapter) for adapter in found.registry]
        kernels = _cpu_kernels()
        if json:
            whole = {
                "backends": [asdict(row) for row in rows],
                "failures": [asdict(failure) for failure in found.failures],
                "cpu_kernels": asdict(kernels),
            }
            out.write(json_format.dumps(whole) + "\n")
        else:
            _print(out, rows, found, kernels)
        out.flush()


def _print(out: TextIO, rows: Sequence[_Row], found: Discovery, kernels: _Kernels) -> None:
    console = Console(file=out)
    if not console.is_terminal:
        console = Console(file=out, width=max(console.width, MIN_FILE_WIDTH))
    table = Table("name", "spec", "metadata", "CUDA graphs", "available", box=None, pad_edge=False)
    for row in rows:
        available = "yes" if row.reason is None else f"no: {row.reason}"
        cells = (row.name, " or ".join(row.spec_types), row.metadata_type, _support_text(row), available)
        table.add_row(*map(Text, cells))
    console.print(table)
    for failure in found.failures:
        console.print(Text(f"\nentry point {failure.entry_point} failed: {failure.reason}"))
    why = "" if kernels.reason is None else f" (no compiled ones: {kernels.reason})"
    console.print(Text(f"\nCPU kernels: {kernels.name}{why}"))


def _row(adapter: Adapter) -> _Row:
    reason = adapter.unavailable()
    support = _graph_support(adapter) if reason is None else []
    return _Row(
        name=adapter.name,
        spec_types=[spec_type.__name__ for spec_type in adapter.spec_types],
        metadata_type=str(getattr(adapter.metadata_type, "__name__", adapter.metadata_type)),
        cudagraph_support=[level.name for level in support],
        available=reason is None,
        reason=reason,
    )


def _support_text(row: _Row) -> str:
    if not row.cudagraph_support:
        return "depends on the spec" if row.available else "-"
    return " to ".join(dict.fromkeys((row.cudagraph_support[0], row.cudagraph_support[-1])))


def _graph_support(adapter: Adapter) -> list[AttentionCGSupport]:
    """What the adapter answers for examples of the specs that it takes, weakest first."""
    from genericbuilders.config import EngineConfig

    config = EngineConfig(max_model_len=1024)
    examples = [spec for spec in _example_specs() if adapter.takes(spec)]
    # Its own classes first: for a subclass that it merely accepts, another answer may hold.
    exact = [spec for spec in examples if type(spec) in adapter.spec_types]
    try:
        return sorted({adapter.cudagraph_support(config, spec) for spec in exact or examples})
    except Exception:
        # Somebody else's code, asked about no real model: it may need layers that this configuration does not have.
        return []


def _example_specs() -> list[KVCacheSpec]:
    import torch

    from genericbuilders import specs

    size, half = 64, torch.bfloat16
    return [
        specs.FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=size, dtype=half),
        specs.FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=size, dtype=half),
        specs.SlidingWindowSpec(block_size=16, num_kv_heads=8, head_size=size, dtype=half, sliding_window=128),
        specs.ChunkedLocalAttentionSpec(
            block_size=16, num_kv_heads=8, head_size=size, dtype=half, attention_chunk_size=128
        ),
        specs.MLAAttentionSpec(block_size=64, num_kv_heads=1, head_size=576, dtype=half),
        specs.SlidingWindowMLASpec(block_size=64, num_kv_heads=1, head_size=576, dtype=half, sliding_window=128),
        specs.RSWASpec(block_size=16, num_kv_heads=8, head_size=size, dtype=half, rswa_window=128),
        specs.SinkFullAttentionSpec(block_size=16, num_kv_heads=8, head_size=size, dtype=half, sink_len=16),
        specs.CrossAttentionSpec(block_size=16, num_kv_heads=8, head_size=size, dtype=half),
        specs.EncoderOnlyAttentionSpec(block_size=16, num_kv_heads=8, head_size=size, dtype=half),
        specs.MambaSpec(block_size=16, shapes=((size, 16),), dtypes=(torch.float32,)),
    ]


def _cpu_kernels() -> _Kernels:
    """Compiles the kernels if nobody has yet, since only that tells whether they can be."""
    import torch

    from genericbuilders.cli.progress import stages
    from genericbuilders.kernels.select import Unavailable, find_kernels, select_kernels

    cpu = torch.device("cpu")
    with stages("looking for kernels"):
        native = find_kernels("native", cpu, torch.float32)
        reason = native.reason if isinstance(native, Unavailable) else None
        return _Kernels(select_kernels(cpu, torch.float32).name, reason)
