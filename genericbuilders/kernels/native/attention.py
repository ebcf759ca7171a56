"""Calls into the compiled attention: over a paged cache, and over keys and values that lie one behind the other."""

from __future__ import annotations

import struct
from collections.abc import Callable

import torch
from torch import Tensor

from genericbuilders.kernels.native.checks import (
    DTYPES,
    raise_fault,
    refuse_attention,
    refuse_scoring,
)
from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.validation import check_varlen

__all__ = ["CACHE", "NativeAttention"]

# The layouts of args.h's structures, all fields 64 bits wide.
CACHE = "13q"
_ATTENTION = struct.Struct(f"={CACHE}24q2d")
_NO_SCORING = (0, 0, 0)
_NO_LSE = (0, 0, 0)
# A window wider than any sequence.
_WIDEST = 2**31


class NativeAttention:
    """The compiled attention kernels, a part of `genericbuilders.kernels.native.NativeKernels`.

    Args:
        entry: the library's function.
    """

    def __init__(self, entry: Callable[[bytes], int]) -> None:
        self._attention = entry

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

        Raises:
            ValueError: shapes or strides that do not fit, a block table too narrow for a sequence or with a block
                outside the cache, or rows that do not fit the tokens.
            TypeError: dtypes that differ or are not supported.
        """
        return self._attend(
            query,
            key_cache,
            value_cache,
            query_start_loc,
            seq_lens,
            block_table,
            None,
            scale,
            causal,
            out,
            scoring,
            lse,
        )

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
            ValueError: shapes or strides that do not fit, or rows that do not fit the tokens.
            TypeError: dtypes that differ or are not supported.
        """
        check_varlen(query, key, value, cu_seqlens_q, cu_seqlens_k)
        # All keys are one block, in which each row begins somewhere.
        num_rows = cu_seqlens_q.shape[0] - 1
        table = cu_seqlens_k.new_zeros(1, 1).expand(num_rows, 1)
        return self._attend(
            query, key[None], value[None], cu_seqlens_q, cu_seqlens_k.diff(), table, cu_seqlens_k, scale, causal, out,
            scoring, lse,
        )  # fmt: skip

    def _attend(
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_table: Tensor,
        key_start: Tensor | None,
        scale: float,
        causal: bool,
        out: Tensor | None,
        scoring: Scoring,
        lse: Tensor | None,
    ) -> Tensor:
        num_tokens, num_heads, head_size = query.shape
        num_blocks, block_size, num_kv_heads, cache_head_size = key_cache.shape
        value_head_size = value_cache.shape[3]
        num_reqs = query_start_loc.shape[0] - 1
        table_rows, table_columns = block_table.shape
        if out is None:
            out = query.new_empty(num_tokens, num_heads, value_head_size)
        query_strides, out_strides, table_strides = query.stride(), out.stride(), block_table.stride()
        kept_key, kept_value = key_cache.stride(), value_cache.stride()
        dtype = DTYPES.get(query.dtype)
        if (
            dtype is None
            or not (query.dtype == key_cache.dtype == value_cache.dtype == out.dtype)
            or not (query_strides[2] == kept_key[3] == kept_value[3] == out_strides[2] == 1)
            # A table of one column, or of no rows, has strides that mean nothing.
            or (table_strides[1] != 1 and table_columns > 1 and table_rows > 0)
            or cache_head_size != head_size
            or num_heads % num_kv_heads
            or value_cache.shape != (num_blocks, block_size, num_kv_heads, value_head_size)
            or out.shape != (num_tokens, num_heads, value_head_size)
            or not (query.is_cpu and key_cache.is_cpu and block_table.is_cpu and seq_lens.is_cpu)
            or not (query_start_loc.dtype == seq_lens.dtype == block_table.dtype == torch.int32)
            or seq_lens.shape[0] < num_reqs
            or table_rows < num_reqs
            or not (query_start_loc.is_contiguous() and seq_lens.is_contiguous())
        ):
            refuse_attention(query, key_cache, value_cache, query_start_loc, seq_lens, block_table, out)
        fault = self._attention(
            _ATTENTION.pack(
                num_blocks, block_size, num_kv_heads, head_size, value_head_size,
                key_cache.data_ptr(), kept_key[0], kept_key[1], kept_key[2],
                value_cache.data_ptr(), kept_value[0], kept_value[1], kept_value[2],
                torch.get_num_threads(), dtype, causal, num_reqs, num_tokens, num_heads,
                query.data_ptr(), query_strides[0], query_strides[1],
                out.data_ptr(), out_strides[0], out_strides[1],
                query_start_loc.data_ptr(), seq_lens.data_ptr(),
                block_table.data_ptr(), table_strides[0], table_columns,
                0 if key_start is None else key_start.data_ptr(),
                *(_NO_SCORING if scoring is PLAIN else _rules(scoring, num_heads)),
                *(_NO_LSE if lse is None else _place(lse, num_tokens, num_heads)),
                scale, scoring.soft_cap or 0.0,
            )
        )  # fmt: skip
        if fault:
            raise_fault(
                fault,
                query_start_loc=query_start_loc,
                seq_lens=seq_lens,
                block_table=block_table,
                num_blocks=num_blocks,
                block_size=block_size,
                num_tokens=num_tokens,
                key_start=key_start,
            )
        return out


def _rules(scoring: Scoring, num_heads: int) -> tuple[int, int, int]:
    """The window, and the addresses of slopes and sinks; zeros for what there is not."""
    slopes, sinks = scoring.alibi_slopes, scoring.sinks
    for tensor in (slopes, sinks):
        if tensor is not None and not (
            tensor.is_cpu and tensor.dtype == torch.float32 and tensor.shape == (num_heads,) and tensor.is_contiguous()
        ):
            refuse_scoring(scoring, num_heads)
    return (
        min(scoring.sliding_window or 0, _WIDEST),
        0 if slopes is None else slopes.data_ptr(),
        0 if sinks is None else sinks.data_ptr(),
    )


def _place(lse: Tensor, num_tokens: int, num_heads: int) -> tuple[int, int, int]:
    """The address and the strides of the tensor for log-sum-exps."""
    if lse.shape != (num_tokens, num_heads) or lse.dtype != torch.float32 or not lse.is_cpu:
        raise ValueError(
            f"lse is {lse.dtype} {tuple(lse.shape)} on {lse.device}; it must be float32 {(num_tokens, num_heads)} on "
            "the CPU"
        )
    token, head = lse.stride()
    return lse.data_ptr(), token, head
