"""Why the compiled kernels refuse a call: only run once a cheap test has failed, or a kernel has stopped."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor

from genericbuilders.kernels.scoring import Scoring
from genericbuilders.kernels.validation import check_attention, check_cache, check_requests, check_rows, check_write

__all__ = [
    "DTYPES",
    "raise_fault",
    "refuse_attention",
    "refuse_rope",
    "refuse_rows",
    "refuse_scoring",
    "refuse_write",
]

# The numbers of args.h's Dtype.
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


def raise_fault(
    fault: int,
    *,
    slot_mapping: Tensor | None = None,
    num_slots: int = 0,
    query_start_loc: Tensor | None = None,
    seq_lens: Tensor | None = None,
    block_table: Tensor | None = None,
    num_blocks: int = 0,
    block_size: int = 1,
    num_tokens: int = 0,
    key_start: Tensor | None = None,
) -> NoReturn:
    """Say what a kernel found while it read its indices: its result holds a kind and a row (args.h).

    Raises:
        ValueError: always.
    """
    kind, row = fault & 7, fault >> 3
    if slot_mapping is not None:
        raise ValueError(
            f"slot_mapping[{row}] is {int(slot_mapping[row])}; the cache has slots 0 to {num_slots - 1}, and -1 "
            "writes nothing"
        )
    if query_start_loc is None or seq_lens is None or block_table is None:
        raise ValueError(f"kernel fault {kind} at row {row}")
    length = int(seq_lens[row])
    start, end = int(query_start_loc[row]), int(query_start_loc[row + 1])
    if key_start is not None and (kind == 1 or length < 0):
        first = int(key_start[row])
        raise ValueError(f"cu_seqlens_k says that row {row} is keys {first} to {first + length}, of {block_size} keys")
    needed = -(-length // max(block_size, 1))
    if kind == 1:
        raise ValueError(
            f"block_table has {block_table.shape[1]} columns, and row {row}'s {length} tokens in blocks of "
            f"{block_size} need {needed}"
        )
    if kind == 2:
        used = [int(block) for block in block_table[row, :needed]]
        wrong = [block for block in used if not 0 <= block < num_blocks]
        raise ValueError(f"block_table row {row} names blocks {wrong}; the cache has blocks 0 to {num_blocks - 1}")
    if kind == 3:
        name = "query_start_loc" if key_start is None else "cu_seqlens_q"
        raise ValueError(f"{name} says that row {row} is tokens {start} to {end}, of {num_tokens} tokens")
    if key_start is not None:
        raise ValueError(f"row {row} has {end - start} queries and {length} keys; under causal it needs a key for each")
    raise ValueError(f"row {row} has {end - start} new tokens but seq_lens says {length} tokens in all")


def refuse_write(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> NoReturn:
    """Say why keys and values cannot be written.

    Raises:
        ValueError: shapes, strides or devices.
        TypeError: dtypes.
    """
    _check_cpu(key=key, value=value, key_cache=key_cache, value_cache=value_cache, slot_mapping=slot_mapping)
    _check_write(key, value, key_cache, value_cache, slot_mapping)
    raise ValueError("write_kv_cache: the inputs' last strides must be 1, also where the last axis is 1 long")


def refuse_rope(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cos: Tensor,
    sin: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    out: Tensor,
) -> NoReturn:
    """Say why queries and keys cannot be rotated.

    Raises:
        ValueError: shapes, strides or devices.
        TypeError: dtypes.
    """
    _check_cpu(query=query, key=key, value=value, cos=cos, sin=sin, key_cache=key_cache, slot_mapping=slot_mapping)
    _check_write(key, value, key_cache, value_cache, slot_mapping)
    check_attention(query, key_cache, value_cache)
    check_rows("out", out, 3)
    for name, angles in (("cos", cos), ("sin", sin)):
        check_rows(name, angles, 2)
        if angles.dtype not in (query.dtype, torch.float32):
            raise TypeError(f"{name} is {angles.dtype}; it must be {query.dtype} or torch.float32")
    if cos.shape != sin.shape or cos.shape[0] != query.shape[0]:
        raise ValueError(
            f"cos {tuple(cos.shape)} and sin {tuple(sin.shape)} must have a row for each of the query's "
            f"{query.shape[0]} tokens"
        )
    if cos.shape[1] % 2 or cos.shape[1] > query.shape[2]:
        raise ValueError(f"rotary_dim {cos.shape[1]} must be even and at most head_size {query.shape[2]}")
    raise ValueError(
        f"rope_and_cache: query {tuple(query.shape)}, out {tuple(out.shape)}, key {tuple(key.shape)} and cos "
        f"{tuple(cos.shape)} must agree, with all last strides 1 and one dtype for cos and sin"
    )


def refuse_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    block_table: Tensor,
    out: Tensor,
) -> NoReturn:
    """Say why attention cannot be computed.

    Raises:
        ValueError: shapes, strides or devices.
        TypeError: dtypes.
    """
    _check_cpu(query=query, key_cache=key_cache, value_cache=value_cache, block_table=block_table, seq_lens=seq_lens)
    check_attention(query, key_cache, value_cache)
    _check_dtype("query", query)
    for name, index in (("query_start_loc", query_start_loc), ("seq_lens", seq_lens), ("block_table", block_table)):
        if index.dtype != torch.int32:
            raise TypeError(f"{name} is {index.dtype}; it must be torch.int32")
        check_rows(name, index, 2 if name == "block_table" else 1)
    check_requests(query_start_loc, seq_lens, block_table)
    raise ValueError(
        f"out is {tuple(out.shape)} {out.dtype}; it must be {(*query.shape[:2], value_cache.shape[3])} {query.dtype}, "
        "and all last strides must be 1"
    )


def refuse_scoring(scoring: Scoring, num_heads: int) -> NoReturn:
    """Say why slopes or sinks cannot be read.

    Raises:
        ValueError: shapes, strides or devices.
    """
    scoring.check_heads(num_heads)
    for name, tensor in (("alibi_slopes", scoring.alibi_slopes), ("sinks", scoring.sinks)):
        if tensor is not None:
            _check_cpu(**{name: tensor})
            check_rows(name, tensor, 1)
    raise ValueError(f"alibi_slopes and sinks must be contiguous float32 [num_heads], here [{num_heads}]")


def refuse_rows(**tensors: Tensor | None) -> NoReturn:
    """Say why a row-wise kernel cannot run on tensors, the first of which names dtype and rows.

    Raises:
        ValueError: shapes, strides or devices.
        TypeError: dtypes.
    """
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    _check_cpu(**given)
    first_name, first = next(iter(given.items()))
    _check_dtype(first_name, first)
    for name, tensor in given.items():
        if tensor.dtype != first.dtype:
            raise TypeError(f"{name} is {tensor.dtype} and {first_name} {first.dtype}; they must be the same")
        check_rows(name, tensor, 1 if name == "weight" else 2)
    shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in given.items())
    raise ValueError(f"the shapes do not fit each other: {shapes}")


def _check_write(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    check_cache(key_cache, value_cache)
    _check_dtype("key_cache", key_cache)
    for name, tensor, cache in (("key", key, key_cache), ("value", value, value_cache)):
        check_rows(name, tensor, 3)
        if tensor.dtype != cache.dtype:
            raise TypeError(f"{name} is {tensor.dtype} and the cache {cache.dtype}: make the cache with the same dtype")
    if slot_mapping.dtype != torch.int64:
        raise TypeError(f"slot_mapping is {slot_mapping.dtype}; it must be torch.int64")
    check_rows("slot_mapping", slot_mapping, 1)
    check_write(key, value, key_cache, value_cache, slot_mapping)


def _check_dtype(name: str, tensor: Tensor) -> None:
    if tensor.dtype not in DTYPES:
        supported = ", ".join(str(dtype) for dtype in DTYPES)
        raise TypeError(f"{name} is {tensor.dtype}; the compiled kernels take {supported}: use the portable ones")


def _check_cpu(**tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if not tensor.is_cpu:
            raise ValueError(
                f"{name} is on {tensor.device}; the compiled kernels run on the CPU: use the portable ones"
            )
