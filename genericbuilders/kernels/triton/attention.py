"""Calls into the Triton kernels: over a paged cache, and over keys and values that lie one behind the other.

Rows of one new token and rows of several have kernels of their own; a batch of both runs both, each of which leaves the
other's rows alone. So nothing is read back from the device where the caller knows bounds on the lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genericbuilders.kernels import portable, varlen
from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.triton.find import TritonKernels
from genericbuilders.kernels.validation import (
    check_attention,
    check_block_table,
    check_keys,
    check_lse,
    check_rows,
    check_varlen,
    checked_counts,
)

__all__ = ["DTYPES", "MAX_HEAD", "Tiles", "TritonAttention"]

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Larger heads do not fit into a program's registers and shared memory: the portable kernels take them.
MAX_HEAD = 256
# More than any sequence has, and twice it is still an int32.
NO_WINDOW = 2**30
MAX_SPLITS = 128
# Four for each multiprocessor of a large device.
PROGRAMS = 512


@dataclass(frozen=True)
class Tiles:
    """What one program takes at a time.

    Attributes:
        decode_keys: keys in a step of a decode.
        prefill_rows: tokens times query heads of a prefill; a power of two, 16 at least.
        prefill_keys: keys in a step of a prefill.
        programs: programs of decodes that keep the device busy; requests are split to reach it.
        split_keys: keys below which a split is not worth its merging.
        warps: warps of a prefill's program.
    """

    decode_keys: int
    prefill_rows: int
    prefill_keys: int
    programs: int
    split_keys: int
    warps: int

    @classmethod
    def on(cls, device: torch.device, dtype: torch.dtype, head_size: int) -> Tiles:
        """The tiles for a device, an element type and the larger of the head sizes of keys and values."""
        if device.type != "cuda":
            # The interpreter: few programs, each of several steps.
            return cls(decode_keys=16, prefill_rows=32, prefill_keys=16, programs=8, split_keys=32, warps=4)
        # What the compiler fits into registers and shared memory, and still has room for loads on the way.
        if dtype == torch.float32:
            return cls(decode_keys=32, prefill_rows=32, prefill_keys=16, programs=PROGRAMS, split_keys=256, warps=4)
        if head_size > 128:
            return cls(decode_keys=32, prefill_rows=128, prefill_keys=32, programs=PROGRAMS, split_keys=256, warps=8)
        return cls(decode_keys=64, prefill_rows=128, prefill_keys=64, programs=PROGRAMS, split_keys=256, warps=8)


class _Call(NamedTuple):
    """What both kernels need; keys are in blocks of ``[num_blocks, block_size, num_kv_heads, head_size]``."""

    query: Tensor
    keys: Tensor
    values: Tensor
    table: Tensor
    key_start: Tensor
    query_start: Tensor
    lengths: Tensor
    paged: bool
    scale: float
    causal: bool
    scoring: Scoring
    window: int
    out: Tensor
    lse: Tensor | None


class TritonAttention:
    """Attention with signatures of `genericbuilders.kernels.protocols`, by this library's Triton kernels.

    Heads of more than 256 elements run by the portable kernels. On a CUDA device rows and block tables are not
    checked against the cache, since that would wait for the device; in the interpreter they are.

    Args:
        kernels: gives the kernels, or why there are none: then the portable ones run; called when first needed.
        tiles: what programs take at a time; ``None`` chooses by device, dtype and head size.
    """

    def __init__(self, kernels: Callable[[], TritonKernels | Unavailable], tiles: Tiles | None = None) -> None:
        self._kernels = kernels
        self._tiles = tiles

    def paged_attention(
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        *,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_table: Tensor,
        scale: float,
        causal: bool,
        max_query_len: int | None = None,
        max_seq_len: int | None = None,
        out: Tensor | None = None,
        scoring: Scoring = PLAIN,
        lse: Tensor | None = None,
    ) -> Tensor:
        """Attend over a paged cache; see `genericbuilders.kernels.protocols.PagedAttention`.

        With both bounds given nothing is read back from a device.

        Raises:
            ValueError: shapes or strides that do not fit, or a block table too narrow for a sequence; in the
                interpreter also rows that do not fit the tokens and blocks outside the cache.
            TypeError: dtypes that differ or are not supported.
        """
        check_attention(query, key_cache, value_cache)
        scoring.check_heads(query.shape[1])
        check_lse(lse, query)
        kernels = self._taking(query.shape[2], value_cache.shape[3])
        if kernels is None:
            return portable.paged_attention(
                query,
                key_cache,
                value_cache,
                query_start_loc=query_start_loc,
                seq_lens=seq_lens,
                block_table=block_table,
                scale=scale,
                causal=causal,
                max_query_len=max_query_len,
                max_seq_len=max_seq_len,
                out=out,
                scoring=scoring,
                lse=lse,
            )
        num_reqs, block_size = query_start_loc.shape[0] - 1, key_cache.shape[1]
        lengths, table = seq_lens[:num_reqs], block_table[:num_reqs]
        known = max_seq_len is not None and not lengths.is_cpu
        check_block_table(torch.tensor([max_seq_len]) if known else lengths, table, block_size)
        if max_query_len is None:
            max_query_len = int(query_start_loc.diff().max()) if num_reqs else 0
        if max_seq_len is None:
            max_seq_len = int(lengths.max()) if num_reqs else 0
        if lengths.is_cpu:
            _checked(query_start_loc, lengths, query.shape[0], causal)
            _check_blocks(query_start_loc, lengths, table, key_cache, scoring.sliding_window)
        return self._attend(
            kernels, query, key_cache, value_cache, table, query_start_loc, query_start_loc, lengths, True,
            max_query_len, max_seq_len, scale, causal, scoring, out, lse,
        )  # fmt: skip

    def varlen_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        scale: float,
        causal: bool,
        scoring: Scoring = PLAIN,
        lse: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Attend without a cache; see `genericbuilders.kernels.protocols.VarlenAttention`.

        Raises:
            ValueError: shapes or strides that do not fit; in the interpreter also rows that do not fit the tokens.
            TypeError: dtypes that differ or are not supported.
        """
        check_varlen(query, key, value, cu_seqlens_q, cu_seqlens_k)
        check_attention(query, key[None], value[None])
        scoring.check_heads(query.shape[1])
        check_lse(lse, query)
        kernels = self._taking(query.shape[2], value.shape[2])
        if kernels is None:
            return varlen.varlen_attention(
                query,
                key,
                value,
                cu_seqlens_q=cu_seqlens_q,
                cu_seqlens_k=cu_seqlens_k,
                max_seqlen_q=max_seqlen_q,
                max_seqlen_k=max_seqlen_k,
                scale=scale,
                causal=causal,
                scoring=scoring,
                lse=lse,
                out=out,
            )
        lengths = cu_seqlens_k.diff()
        if cu_seqlens_k.is_cpu:
            bounds = cu_seqlens_k.numpy()
            for row in np.flatnonzero((bounds[:-1] < 0) | (np.diff(bounds) < 0) | (bounds[1:] > len(key))).tolist():
                check_keys(row, int(bounds[row]), int(bounds[row + 1]), len(key))
            _checked(cu_seqlens_q, lengths, query.shape[0], causal)
        return self._attend(
            kernels, query, key[None], value[None], cu_seqlens_q[None], cu_seqlens_k, cu_seqlens_q, lengths, False,
            max_seqlen_q, max_seqlen_k, scale, causal, scoring, out, lse,
        )  # fmt: skip

    def _taking(self, head_size: int, value_size: int) -> TritonKernels | None:
        """The kernels, if they take heads of these sizes."""
        found = self._kernels() if max(head_size, value_size) <= MAX_HEAD else None
        return found if isinstance(found, TritonKernels) else None

    def _attend(
        self,
        kernels: TritonKernels,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        table: Tensor,
        key_start: Tensor,
        query_start: Tensor,
        lengths: Tensor,
        paged: bool,
        max_query_len: int,
        max_seq_len: int,
        scale: float,
        causal: bool,
        scoring: Scoring,
        out: Tensor | None,
        lse: Tensor | None,
    ) -> Tensor:
        if query.dtype not in DTYPES:
            raise TypeError(f"query is {query.dtype}; the Triton kernels take {', '.join(map(str, DTYPES))}")
        if not query.device == keys.device == table.device == query_start.device == lengths.device:
            raise ValueError(
                f"query is on {query.device}, the cache on {keys.device}, block_table on {table.device}, "
                f"query_start_loc on {query_start.device} and seq_lens on {lengths.device}; they must be on one device"
            )
        if out is None:
            out = query.new_empty(query.shape[0], query.shape[1], values.shape[3])
        check_rows("out", out, 3)
        out.zero_()
        if lse is not None:
            lse.fill_(-math.inf)
        if not (query.numel() and lengths.numel() and max_seq_len and max_query_len):
            return out
        window = scoring.sliding_window
        if window is None or window >= max_seq_len + max_query_len:
            window = NO_WINDOW
        call = _Call(
            query, keys, values, table if table.stride(1) == 1 else table.contiguous(), key_start, _ints(query_start),
            _ints(lengths), paged, scale, causal, scoring, window, out, lse,
        )  # fmt: skip
        tiles = self._tiles or Tiles.on(query.device, query.dtype, max(query.shape[2], values.shape[3]))
        _decodes(kernels, call, tiles, min(max_seq_len, window))
        if max_query_len > 1:
            _prefills(kernels, call, tiles)
        return out


def _decodes(kernels: TritonKernels, call: _Call, tiles: Tiles, most_keys: int) -> None:
    num_reqs, num_heads, num_kv_heads = len(call.lengths), call.query.shape[1], call.keys.shape[2]
    value_size = call.values.shape[3]
    splits = _splits(num_reqs * num_kv_heads, most_keys, tiles)
    parts = call.query.new_empty(num_reqs, num_heads, splits, value_size, dtype=torch.float32)
    sums = call.query.new_empty(num_reqs, num_heads, splits, dtype=torch.float32)
    rules, group = call.scoring, num_heads // num_kv_heads
    kernels.attend_splits[num_reqs, num_kv_heads, splits](
        parts, sums, call.query, call.keys, call.values, call.table, call.key_start, call.query_start,
        call.lengths, _or(_dense(rules.alibi_slopes), sums), call.scale, rules.soft_cap or 0.0, call.window,
        *call.query.stride()[:2], *call.keys.stride()[:3], *call.values.stride()[:3], call.table.stride(0),
        GROUP=group, ROWS=_padded(group), SPLITS=splits, **_sizes(call, tiles.decode_keys), num_warps=4,
    )  # fmt: skip
    lse = _or(call.lse, sums)
    kernels.merge_splits[num_reqs, num_heads](
        call.out, lse, parts, sums, call.query_start, call.lengths, _or(_dense(rules.sinks), sums),
        *call.out.stride()[:2], *lse.stride()[:2], SPLITS=splits, VALUE=value_size,
        VALUE_PADDED=_padded(value_size), SINKS=rules.sinks is not None, LSE=call.lse is not None, num_warps=4,
    )  # fmt: skip


def _prefills(kernels: TritonKernels, call: _Call, tiles: Tiles) -> None:
    num_reqs, num_kv_heads = len(call.lengths), call.keys.shape[2]
    group = call.query.shape[1] // num_kv_heads
    rows = max(tiles.prefill_rows, _padded(group))
    tokens = rows // group
    rules, lse = call.scoring, _or(call.lse, call.out)
    slopes, sinks = _or(_dense(rules.alibi_slopes), call.lengths), _or(_dense(rules.sinks), call.lengths)
    kernels.attend_rows[call.query.shape[0] // tokens + num_reqs, num_kv_heads](
        call.out, lse, call.query, call.keys, call.values, call.table, call.key_start, call.query_start,
        call.lengths, slopes, sinks, num_reqs, call.scale, rules.soft_cap or 0.0, call.window,
        *call.query.stride()[:2], *call.keys.stride()[:3], *call.values.stride()[:3], call.table.stride(0),
        *call.out.stride()[:2], *lse.stride()[:2], GROUP=group, ROWS=rows, TOKENS=tokens, CAUSAL=call.causal,
        WINDOW=call.window != NO_WINDOW, SINKS=rules.sinks is not None, LSE=call.lse is not None,
        **_sizes(call, tiles.prefill_keys), num_warps=tiles.warps,
    )  # fmt: skip


def _sizes(call: _Call, keys: int) -> dict[str, int | bool]:
    """The settings that both kernels have."""
    head_size, value_size = call.keys.shape[3], call.values.shape[3]
    return {
        "HEAD": head_size,
        "HEAD_PADDED": _padded(head_size),
        "VALUE": value_size,
        "VALUE_PADDED": _padded(value_size),
        "BLOCK_SIZE": call.keys.shape[1] if call.paged else 1,
        "KEYS": keys,
        "PAGED": call.paged,
        "SOFT_CAP": call.scoring.soft_cap is not None,
        "ALIBI": call.scoring.alibi_slopes is not None,
        # float32 has no shorter way, and the interpreter multiplies bfloat16 by its bits.
        "WIDE": call.query.dtype == torch.float32 or not call.query.is_cuda,
    }


def _splits(programs: int, most_keys: int, tiles: Tiles) -> int:
    """Runs of keys for each of ``programs`` pairs of request and head: a power of two, to have few variants."""
    useful = min(-(-tiles.programs // programs), -(-most_keys // tiles.split_keys), MAX_SPLITS)
    return 1 << (max(useful, 1) - 1).bit_length()


def _padded(size: int) -> int:
    """The power of two that holds ``size``; not below 16, the least that matrix units take."""
    return max(16, 1 << (size - 1).bit_length())


def _or(tensor: Tensor | None, unread: Tensor) -> Tensor:
    """What a kernel is given in place of what there is not: it does not read it."""
    return unread if tensor is None else tensor


def _dense(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _ints(tensor: Tensor) -> Tensor:
    return tensor.to(torch.int32).contiguous()


def _checked(query_start_loc: Tensor, lengths: Tensor, num_tokens: int, causal: bool) -> None:
    checked_counts(query_start_loc.numpy().astype(np.int64), lengths.numpy().astype(np.int64), num_tokens, causal)


def _check_blocks(
    query_start_loc: Tensor, lengths: Tensor, table: Tensor, key_cache: Tensor, window: int | None
) -> None:
    counts, column = query_start_loc.diff(), torch.arange(table.shape[1]) * key_cache.shape[1]
    first = (lengths - counts - (NO_WINDOW if window is None else min(window, NO_WINDOW)) + 1).clamp(min=0)
    block = key_cache.shape[1]
    read = (column < lengths[:, None]) & (column > first[:, None] - block) & (counts > 0)[:, None]
    wrong = torch.nonzero(read & ((table < 0) | (table >= len(key_cache))))
    if len(wrong):
        row, place = (int(number) for number in wrong[0])
        raise ValueError(
            f"block_table says that row {row} has block {int(table[row, place])} in column {place}; the cache has "
            f"blocks 0 to {len(key_cache) - 1}"
        )
