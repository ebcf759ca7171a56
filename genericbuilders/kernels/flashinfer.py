"""Attention by FlashInfer, where it is installed: what it is told of a batch, and its plans.

FlashInfer splits its work in two: `plan` looks at a batch's lengths on the host, once for all layers that are alike,
and `run` launches the kernels of one layer. It wants a batch's pages one behind the other, as in a compressed sparse
row matrix, where others take a block table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from genericbuilders.kernels.flashinfer_library import DecodeWrapper, FlashInferFunctions, PrefillWrapper
from genericbuilders.kernels.ints import Ints, tensor_of
from genericbuilders.kernels.native import Unavailable

__all__ = [
    "FlashInferPlan",
    "FlashInferPlanner",
    "Heads",
    "PageInputs",
    "PageList",
    "page_inputs",
    "why_not_flashinfer",
]

# What its kernels are compiled for; others exist for latent attention only.
HEAD_SIZES = (64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16)
# What FlashInfer recommends, for partial results of split sequences.
WORKSPACE_BYTES = 128 * 2**20
# Our caches are [blocks, heads, tokens of a block, elements].
KV_LAYOUT = "HND"


@dataclass(frozen=True)
class Heads:
    """What `plan` is told of a layer: layers that agree in it share one plan.

    Attributes:
        num_heads: query heads.
        num_kv_heads: key-value heads.
        head_size: elements of a head.
        scale: factor on the scores.
        causal: whether a token sees only itself and what came before.
        sliding_window: tokens that a token sees, its own included; ``None`` for all.
        soft_cap: bound on the scores; ``None`` for none.
        dtype: of queries and cache.
    """

    num_heads: int
    num_kv_heads: int
    head_size: int
    scale: float
    causal: bool
    sliding_window: int | None
    soft_cap: float | None
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class PageList:
    """A batch's blocks, one row behind the other: gathered when first asked for, since other kernels take the table.

    Attributes:
        block_table: ``[num_rows, max_blocks]`` int32, or more rows, on the device.
        starts: ``[num_rows + 1]`` int32 on the host: where each row's blocks start in the list.
    """

    block_table: Tensor
    starts: Ints

    @cached_property
    def blocks(self) -> Tensor:
        """``[starts[-1]]`` int32. Waits for no device."""
        starts, table = self.starts, self.block_table
        rows = np.arange(len(starts) - 1) * table.shape[1] - starts[:-1]
        places = np.arange(int(starts[-1])) + rows.repeat(starts[1:] - starts[:-1])
        return table.reshape(-1).index_select(0, tensor_of(places).to(table.device, non_blocking=True))


@dataclass(frozen=True, eq=False)
class PageInputs:
    """What FlashInfer is told of a batch. The pages are on the device; all else is on the host, where it plans.

    Attributes:
        qo_indptr: ``[num_rows + 1]`` int32: where each row's new tokens start.
        paged_kv_indptr: ``[num_rows + 1]`` int32: where each row's pages start in ``paged_kv_indices``.
        paged_kv_last_page_len: ``[num_rows]`` int32: tokens in each row's last page, 1 to ``page_size``; 0 for a row
            without pages.
        page_size: tokens in a page.
        pages: the pages of these rows, and maybe of others before and behind them.
        first_page: pages of others before them.
    """

    qo_indptr: Tensor
    paged_kv_indptr: Tensor
    paged_kv_last_page_len: Tensor
    page_size: int
    pages: PageList
    first_page: int = 0

    @property
    def paged_kv_indices(self) -> Tensor:
        """``[paged_kv_indptr[-1]]`` int32, on the device: the rows' blocks, one row behind the other."""
        return self.pages.blocks[self.first_page : self.first_page + int(self.paged_kv_indptr[-1])]

    def rows(self, first: int, last: int) -> PageInputs:
        """The same for the rows from ``first`` up to ``last``, whose tokens and pages are then counted from 0."""
        tokens, pages = self.qo_indptr[first : last + 1], self.paged_kv_indptr[first : last + 1]
        return PageInputs(
            tokens - tokens[0],
            pages - pages[0],
            self.paged_kv_last_page_len[first:last],
            self.page_size,
            self.pages,
            self.first_page + int(pages[0]),
        )


def page_inputs(query_start_loc: Tensor, seq_lens: Tensor, block_table: Tensor, page_size: int) -> PageInputs:
    """A batch's rows and pages as FlashInfer wants them. Waits for no device.

    Args:
        query_start_loc: ``[num_rows + 1]`` int32, on the host.
        seq_lens: ``[num_rows]`` int32, on the host.
        block_table: ``[num_rows, max_blocks]`` int32, or more rows, on the device.
        page_size: tokens in a page.

    Raises:
        ValueError: the table has fewer columns than a sequence has pages, or fewer rows than there are sequences.
    """
    lengths: Ints = seq_lens.numpy()
    if len(block_table) < len(lengths):
        raise ValueError(f"block_table has {len(block_table)} rows for {len(lengths)} requests")
    up = lengths + (page_size - 1)
    counts = up // page_size
    starts = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.add.accumulate(counts, out=starts[1:])
    row = int(counts.argmax()) if len(counts) else 0
    if len(counts) and counts.item(row) > block_table.shape[1]:
        raise ValueError(
            f"block_table has {block_table.shape[1]} columns, and row {row}, a sequence of {lengths[row]} tokens in "
            f"blocks of {page_size}, needs {counts[row]}"
        )
    counts *= page_size
    up -= counts
    up += 1
    last = up.astype(np.int32, copy=False)
    if np.count_nonzero(lengths) < len(lengths):
        last[lengths == 0] = 0
    return PageInputs(query_start_loc, tensor_of(starts), tensor_of(last), page_size, PageList(block_table, starts))


def why_not_flashinfer(heads: Heads, *, alibi: bool, sinks: bool) -> str | None:
    """Why FlashInfer's kernels do not take a layer, or ``None`` where they do."""
    if heads.dtype not in DTYPES:
        return f"it computes in {', '.join(map(str, DTYPES))}, not in {heads.dtype}"
    if heads.head_size not in HEAD_SIZES:
        return f"it takes heads of {', '.join(map(str, HEAD_SIZES))} elements, not of {heads.head_size}"
    if alibi or sinks:
        return f"it is not asked for {'slopes' if alibi else 'sinks'}"
    if heads.sliding_window is not None and not heads.causal:
        return "its windows reach to the left only, and the layer sees both sides"
    return None


@dataclass(frozen=True, eq=False)
class FlashInferPlan:
    """A batch planned for layers that agree in their `Heads`. It holds until the next batch is planned for them.

    Attributes:
        decode: planned for the decodes; ``None`` without any.
        num_decode_tokens: tokens of the decodes, padding included where a graph holds them.
        prefill: planned for all other rows; ``None`` without any.
        num_tokens: tokens of all rows.
    """

    decode: DecodeWrapper | None
    num_decode_tokens: int
    prefill: PrefillWrapper | None
    num_tokens: int

    def run(self, query: Tensor, key_cache: Tensor, value_cache: Tensor) -> Tensor:
        """Attend; see `genericbuilders.kernels.protocols.PagedAttention` for the tensors.

        Returns:
            ``[num_tokens, num_heads, head_size]``; zero behind the rows' tokens.
        """
        cache = (key_cache.transpose(1, 2), value_cache.transpose(1, 2))
        out, decoded = torch.empty_like(query, memory_format=torch.contiguous_format), self.num_decode_tokens
        if self.decode is not None:
            self.decode.run(query[:decoded].contiguous(), cache, out=out[:decoded])
        if self.prefill is not None:
            rest = slice(decoded, self.num_tokens)
            self.prefill.run(query[rest].contiguous(), cache, out=out[rest])
        out[self.num_tokens :] = 0
        return out


class FlashInferPlanner:
    """Plans batches, and keeps the wrappers: one of decodes and one of other rows for each `Heads`.

    Uniform decodes that a graph was captured with have wrappers of their own, whose buffers stay where they are:
    planning for as many rows again writes to them, and a replay of the graph reads them.

    Args:
        functions: gives FlashInfer's functions, or why there are none; called when first planned for.
        device: where the cache is.
    """

    def __init__(self, functions: Callable[[], FlashInferFunctions | Unavailable], device: torch.device) -> None:
        self._functions = functions
        self._device = device
        self._workspace: Tensor | None = None
        self._decodes: dict[Heads, DecodeWrapper] = {}
        self._prefills: dict[Heads, PrefillWrapper] = {}
        self._graphs: dict[tuple[Heads, int], DecodeWrapper] = {}

    def plan(
        self,
        heads: Heads,
        inputs: PageInputs,
        num_decodes: int,
        padded_tokens: int,
        *,
        capture_pages: int | None = None,
    ) -> FlashInferPlan | None:
        """Plan a batch whose first ``num_decodes`` rows bring one token each, or, behind those, none.

        Args:
            heads: the layers'.
            inputs: the batch.
            num_decodes: rows at its front that are decodes; empty rows among them are padding.
            padded_tokens: tokens that queries will have, padding included.
            capture_pages: the most pages that as many decodes have together, if a graph is captured with this batch.

        Returns:
            The plan, or ``None`` where FlashInfer is installed, but cannot be imported.
        """
        functions = self._functions()
        if isinstance(functions, Unavailable):
            return None
        rows, tokens = len(inputs.paged_kv_last_page_len), int(inputs.qo_indptr[-1])
        decode, decoded = self._decode(functions, heads, inputs, num_decodes, padded_tokens, capture_pages)
        prefill = None
        if num_decodes < rows:
            prefill = self._prefills.get(heads) or functions.prefill(self._shared(), KV_LAYOUT)
            self._prefills[heads] = prefill
            rest = inputs.rows(num_decodes, rows)
            prefill.plan(
                rest.qo_indptr,
                rest.paged_kv_indptr,
                rest.paged_kv_indices,
                rest.paged_kv_last_page_len,
                heads.num_heads,
                heads.num_kv_heads,
                heads.head_size,
                rest.page_size,
                causal=heads.causal,
                sm_scale=heads.scale,
                window_left=_window_left(heads),
                logits_soft_cap=heads.soft_cap,
                q_data_type=heads.dtype,
                kv_data_type=heads.dtype,
            )
        return FlashInferPlan(decode, decoded, prefill, tokens)

    def _decode(
        self,
        functions: FlashInferFunctions,
        heads: Heads,
        inputs: PageInputs,
        num_decodes: int,
        padded_tokens: int,
        capture_pages: int | None,
    ) -> tuple[DecodeWrapper | None, int]:
        """The decodes' wrapper, planned, and the tokens that it takes."""
        rows, tokens = len(inputs.paged_kv_last_page_len), int(inputs.qo_indptr[num_decodes])
        whole = num_decodes == rows and 0 < rows <= padded_tokens
        graph = self._graphs.get((heads, rows)) if whole else None
        if graph is None and whole and capture_pages is not None:
            graph = self._graphs[heads, rows] = self._for_graph(functions, rows, capture_pages)
        if graph is not None:
            wrapper, count = graph, rows
        elif tokens:
            wrapper = self._decodes.get(heads) or functions.decode(
                self._shared(),
                KV_LAYOUT,
                use_cuda_graph=False,
                use_tensor_cores=True,
                paged_kv_indptr_buffer=None,
                paged_kv_indices_buffer=None,
                paged_kv_last_page_len_buffer=None,
            )
            self._decodes[heads] = wrapper
            # It takes one token from each row, and empty rows have none.
            count = tokens
        else:
            return None, 0
        front = inputs.rows(0, count)
        wrapper.plan(
            front.paged_kv_indptr,
            front.paged_kv_indices,
            front.paged_kv_last_page_len,
            heads.num_heads,
            heads.num_kv_heads,
            heads.head_size,
            front.page_size,
            window_left=_window_left(heads),
            logits_soft_cap=heads.soft_cap,
            q_data_type=heads.dtype,
            kv_data_type=heads.dtype,
            sm_scale=heads.scale,
        )
        return wrapper, count

    def _for_graph(self, functions: FlashInferFunctions, rows: int, pages: int) -> DecodeWrapper:
        def buffer(size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.int32, device=self._device)

        return functions.decode(
            self._shared(),
            KV_LAYOUT,
            use_cuda_graph=True,
            use_tensor_cores=True,
            paged_kv_indptr_buffer=buffer(rows + 1),
            paged_kv_indices_buffer=buffer(pages),
            paged_kv_last_page_len_buffer=buffer(rows),
        )

    def _shared(self) -> Tensor:
        """The workspace: layers run one behind the other, so that all wrappers may write to one."""
        if self._workspace is None:
            self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=self._device)
        return self._workspace


def _window_left(heads: Heads) -> int:
    return -1 if heads.sliding_window is None else heads.sliding_window - 1
