"""What stands in, in the peer's process, for the kernels and libraries that vLLM's builders want beside Python.

No source is changed. Every stand-in computes what the real one would, so that fields can be compared, unless `IDLE` is
set: while builders are timed it does nothing, as if kernels and plans cost nothing, which favours vLLM.
"""

# ruff: noqa: ANN401  (nothing of vLLM is typed in this environment)
from __future__ import annotations

import functools
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

IDLE = SimpleNamespace(now=False)


def unless_idle(result: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which does nothing while builders are timed."""

    @functools.wraps(result)
    def run(*args: Any, **kwargs: Any) -> Any:
        return None if IDLE.now else result(*args, **kwargs)

    return run


class Kernel:
    """A Triton kernel by a function of its arguments: ``kernel[grid](...)``."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = unless_idle(run)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        return self.run


def row_of_token(starts: torch.Tensor, out: torch.Tensor, rows: int, mapped: int, tokens: int, **_: Any) -> None:
    """Each token's request; 0 behind them."""
    out[:tokens] = 0
    out[:mapped] = torch.arange(rows, dtype=torch.int32).repeat_interleave(starts.diff().long())[:mapped]


def copy_pages(pages: torch.Tensor, table: torch.Tensor, _: int, starts: torch.Tensor, **__: Any) -> None:
    """The rows' blocks, one row behind the other."""
    for row, (first, last) in enumerate(zip(starts.tolist(), starts[1:].tolist(), strict=False)):
        if row < len(table) and last > first:
            pages[first:last] = table[row, : last - first]


def chunk_ranges(
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    row_starts: torch.Tensor,
    token_to_seq: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    first: int,
    last: int,
    *_: Any,
    num_reqs: int,
    **__: Any,
) -> None:
    """Of each query token where its keys start and end among the keys of a chunk."""
    counts = query_start_loc.diff().long()
    row = torch.arange(num_reqs).repeat_interleave(counts)
    position = torch.arange(len(row)) - query_start_loc[row] + (seq_lens - counts)[row]
    starts.copy_(row_starts[row][first:last])
    ends.copy_((row_starts[row] + position + 1)[first:last])
    token_to_seq.copy_(torch.arange(num_reqs).repeat_interleave(cu_seq_lens.diff().long()))


class Wrapper:
    """FlashInfer's wrapper of one kind of rows, which remembers what it was told of them."""

    is_cuda_graph_enabled = False

    def __init__(self, *_: Any, **__: Any) -> None:
        self.told: dict[str, Any] = {}

    def plan(self, **told: Any) -> None:
        """Remember."""
        self.told = told


def seq_lens_of_pages(starts: torch.Tensor, last: torch.Tensor, page_size: int) -> torch.Tensor:
    """Tokens of each row, from its pages."""
    return last if IDLE.now else (starts.diff() - 1).clamp(min=0) * page_size + last


def module(name: str, **members: Any) -> None:
    """A module in place of one that is not installed."""
    made = ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    made.__dict__.update(members)
    sys.modules[name] = made


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


def install() -> None:
    """Put everything in its place."""
    from vllm.v1.attention.backends.mla import indexer
    from vllm.v1.attention.ops import metadata

    metadata._token_request_mapping_kernel = Kernel(row_of_token)
    indexer._BUILD_PREFILL_CHUNK_METADATA_KERNEL = unless_idle(chunk_ranges)
    module(
        "hpc",
        get_attention_decode_task_workspace=lambda *_, **__: torch.zeros(1),
        assign_attention_decode_task=nothing,
    )
    module(
        "flashinfer",
        BatchAttentionWithAttentionSinkWrapper=Wrapper,
        BatchDecodeWithPagedKVCacheWrapper=Wrapper,
        BatchPrefillWithPagedKVCacheWrapper=type("Prefill", (Wrapper,), {}),
        BatchPrefillWithRaggedKVCacheWrapper=Wrapper,
        get_seq_lens=seq_lens_of_pages,
        nvfp4_quantize_append_paged_kv_cache_with_slot_mapping=nothing,
        __path__=[],
    )
    module(
        "flashinfer.decode",
        fast_decode_plan=nothing,
        trtllm_batch_decode_with_kv_cache=nothing,
        trtllm_batch_decode_with_kv_cache_mla=nothing,
    )
    module("flashinfer.prefill", trtllm_batch_context_with_kv_cache=nothing)
    module(
        "flashinfer.utils",
        FP4Tensor=object,
        get_device_sm_count=nothing,
        get_trtllm_gen_multi_ctas_kv_counter_bytes=nothing,
    )
    from vllm.v1.attention.backends import fa_utils, flashinfer, utils

    flashinfer._copy_page_indices_kernel = Kernel(copy_pages)
    flashinfer.pin_host_range_buf = nothing
    layer = utils.PerLayerParameters(-1, None, 0.125, False)
    flashinfer.get_per_layer_parameters = lambda *_: {"layer": layer}
    fa_utils.flash_attn_varlen_func = fa_utils.get_scheduler_metadata = nothing
    # The module of CUTLASS allocates its workspace on a CUDA device when it is imported.
    empty = torch.empty
    torch.empty = lambda *sizes, device=None, **rest: empty(*sizes, device=None if device == "cuda" else device, **rest)
    try:
        from vllm.v1.attention.backends.mla import cutlass_mla  # noqa: F401
    finally:
        torch.empty = empty
    from vllm.v1.attention.backends.mla import flashmla

    flashmla.get_mla_metadata = lambda *_, **__: (None, None)
