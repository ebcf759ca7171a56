"""Calls into the compiled kernels of quantised caches: attention over one, and the writing of new tokens."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from genericbuilders.kernels.native.attention import CACHE
from genericbuilders.kernels.native.checks import DTYPES, raise_fault
from genericbuilders.kernels.quant.codecs import VectorCodec
from genericbuilders.kernels.quant.formats import Coding
from genericbuilders.kernels.quant.slots import SlotCodec
from genericbuilders.kernels.quant.validation import check_quantised
from genericbuilders.kernels.validation import check_rows

__all__ = ["NativeQuantisedKernels"]

# The layouts of args.h's and quantised_args.h's structures, all fields 64 bits wide.
_CODE = "5qd3q"
_ATTENTION = struct.Struct(f"={CACHE}24q2d{_CODE}{_CODE}")
_WRITE = struct.Struct(f"=19q{_CODE}{_CODE}")
# The numbers of quantised_args.h's Coding.
_CODINGS = {Coding.FLOAT8: 0, Coding.INT8: 1, Coding.LLOYD_MAX: 2}
# No place where keys begin, no window, slopes or sinks, and no place for log-sum-exps.
_NOTHING_MORE = (0,) * 7


class NativeQuantisedKernels:
    """The compiled kernels of quantised caches, with signatures of `genericbuilders.kernels.quant.protocols`.

    Tensors are on the CPU, in float32, bfloat16 or float16 (computed in float32). The number of threads follows
    ``torch.get_num_threads()``; results do not depend on it, and, but for the turning of queries and sums, a row's
    result not on the other rows.

    Args:
        path: the shared library that `genericbuilders.kernels.native.build.build_library` made.

    Raises:
        OSError: it cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        library = ctypes.CDLL(str(path))
        self._attention = _entry(library, "gb_quantised_attention")
        self._write = _entry(library, "gb_quantised_write")

    def __repr__(self) -> str:
        return f"NativeQuantisedKernels({self.path})"

    def write_slots(self, key: Tensor, value: Tensor, cache: Tensor, slot_mapping: Tensor, codec: SlotCodec) -> None:
        """Quantise and store; see `genericbuilders.kernels.quant.protocols.WriteSlots`.

        Raises:
            ValueError: shapes or strides that do not fit, or a slot outside the cache; nothing is written.
            TypeError: dtypes that differ or are not supported.
        """
        dtype = DTYPES.get(key.dtype)
        if (
            dtype is None
            or key.dim() != 3
            or cache.dim() != 4
            or value.dtype != key.dtype
            or value.shape != key.shape
            or cache.dtype != torch.uint8
            or key.shape[2] != codec.slot.head_size
            or cache.shape[1] != key.shape[1]
            or cache.shape[3] != codec.slot.slot_bytes
            or not (key.stride(2) == value.stride(2) == cache.stride(3) == 1)
            or not (key.is_cpu and value.is_cpu and cache.is_cpu and slot_mapping.is_cpu)
            or slot_mapping.dtype != torch.int64
            or slot_mapping.shape[0] < key.shape[0]
            or slot_mapping.stride(0) != 1
        ):
            _refuse_write(key, value, cache, slot_mapping, codec)
        num_blocks, num_kv_heads, block_size, slot_bytes = cache.shape
        block, head, token, _ = cache.stride()
        fault = self._write(
            _WRITE.pack(
                num_blocks, block_size, num_kv_heads, key.shape[2], slot_bytes, cache.data_ptr(), block, token, head,
                torch.get_num_threads(), dtype, key.shape[0],
                key.data_ptr(), key.stride(0), key.stride(1), value.data_ptr(), value.stride(0), value.stride(1),
                slot_mapping.data_ptr(),
                *_described(codec.key, 0), *_described(codec.value, codec.slot.key_bytes),
            )
        )  # fmt: skip
        if fault:
            raise_fault(fault, slot_mapping=slot_mapping, num_slots=num_blocks * block_size)

    def paged_attention(
        self,
        query: Tensor,
        cache: Tensor,
        codec: SlotCodec,
        *,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_table: Tensor,
        scale: float,
        causal: bool,
        max_query_len: int | None = None,
        max_seq_len: int | None = None,
    ) -> Tensor:
        """Attend over a paged cache; see `genericbuilders.kernels.quant.protocols.QuantisedAttention`.

        Raises:
            ValueError: shapes or strides that do not fit, a block table too narrow for a sequence or with a block
                outside the cache, or rows that do not fit the tokens.
            TypeError: dtypes that are not supported.
        """
        num_reqs = query_start_loc.shape[0] - 1
        if (
            query.dim() != 3
            or cache.dim() != 4
            or block_table.dim() != 2
            or query.dtype not in DTYPES
            or cache.dtype != torch.uint8
            or query.shape[2] != codec.slot.head_size
            or cache.shape[3] != codec.slot.slot_bytes
            or not cache.shape[1]
            or query.shape[1] % cache.shape[1]
            or not (query.stride(2) == cache.stride(3) == block_table.stride(1) == 1)
            or not (query.is_cpu and cache.is_cpu and block_table.is_cpu and seq_lens.is_cpu)
            or not (query_start_loc.dtype == seq_lens.dtype == block_table.dtype == torch.int32)
            or seq_lens.shape[0] < num_reqs
            or block_table.shape[0] < num_reqs
            or not (query_start_loc.is_contiguous() and seq_lens.is_contiguous())
        ):
            _refuse(query, cache, codec, query_start_loc, seq_lens, block_table)
        turned = codec.turn_query(query.float())
        num_tokens, num_heads, head_size = turned.shape
        num_blocks, num_kv_heads, block_size, _ = cache.shape
        out = turned.new_empty(num_tokens, num_heads, head_size)
        block, head, token, _ = cache.stride()
        query_token, query_head, _ = turned.stride()
        fault = self._attention(
            _ATTENTION.pack(
                num_blocks, block_size, num_kv_heads, head_size, head_size,
                cache.data_ptr(), block, token, head, cache.data_ptr(), block, token, head,
                torch.get_num_threads(), DTYPES[torch.float32], causal, num_reqs, num_tokens, num_heads,
                turned.data_ptr(), query_token, query_head,
                out.data_ptr(), num_heads * head_size, head_size,
                query_start_loc.data_ptr(), seq_lens.data_ptr(),
                block_table.data_ptr(), block_table.stride(0), block_table.shape[1],
                *_NOTHING_MORE, scale, 0.0,
                *_described(codec.key, 0), *_described(codec.value, codec.slot.key_bytes),
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
            )
        return codec.turn_back(out).to(query.dtype)


def _entry(library: ctypes.CDLL, name: str) -> Callable[[bytes], int]:
    """One of the library's functions: it takes its packed arguments and returns a fault, 0 for none."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)((name, library))


def _described(codec: VectorCodec, first: int) -> tuple[int, int, int, int, int, float, int, int, int]:
    """A vector that starts ``first`` bytes into its slot, as quantised_args.h's VectorCode."""
    kept, table = codec.format, codec.table
    levels = thresholds = turn = 0
    if table is not None:
        levels, thresholds = table.levels.data_ptr(), table.thresholds.data_ptr()
        turn = table.transposed_turn.data_ptr()
    behind, factor = first + codec.num_element_bytes, codec.tensor_factor
    return (_CODINGS[kept.coding], kept.bits, first, behind, kept.factor_bytes, factor, levels, thresholds, turn)


def _refuse_write(key: Tensor, value: Tensor, cache: Tensor, slot_mapping: Tensor, codec: SlotCodec) -> NoReturn:
    """Say why the compiled kernel cannot write."""
    check_quantised(key, cache, codec)
    check_rows("value", value, 3)
    if key.dtype not in DTYPES or value.dtype != key.dtype:
        supported = ", ".join(str(dtype) for dtype in DTYPES)
        raise TypeError(
            f"key is {key.dtype} and value {value.dtype}; the compiled kernels take {supported}, the same for both: "
            "use the portable ones"
        )
    if slot_mapping.dtype != torch.int64:
        raise TypeError(f"slot_mapping is {slot_mapping.dtype}; it must be torch.int64")
    check_rows("slot_mapping", slot_mapping, 1)
    if slot_mapping.shape[0] < key.shape[0]:
        raise ValueError(f"slot_mapping has {slot_mapping.shape[0]} entries for {key.shape[0]} tokens")
    for name, tensor in (("key", key), ("value", value), ("cache", cache), ("slot_mapping", slot_mapping)):
        if not tensor.is_cpu:
            raise ValueError(
                f"{name} is on {tensor.device}; the compiled kernels run on the CPU: use the portable ones"
            )
    raise ValueError(
        f"key {tuple(key.shape)} and value {tuple(value.shape)} must have the cache's {cache.shape[1]} key-value heads "
        "and the same shape, with last strides of 1"
    )


def _refuse(
    query: Tensor, cache: Tensor, codec: SlotCodec, query_start_loc: Tensor, seq_lens: Tensor, block_table: Tensor
) -> NoReturn:
    """Say why the compiled kernel cannot run."""
    check_quantised(query, cache, codec)
    if query.dtype not in DTYPES:
        supported = ", ".join(str(dtype) for dtype in DTYPES)
        raise TypeError(f"query is {query.dtype}; the compiled kernels take {supported}: use the portable ones")
    for name, index in (("query_start_loc", query_start_loc), ("seq_lens", seq_lens), ("block_table", block_table)):
        if index.dtype != torch.int32:
            raise TypeError(f"{name} is {index.dtype}; it must be torch.int32")
        check_rows(name, index, 2 if name == "block_table" else 1)
    for name, tensor in (("query", query), ("cache", cache), ("block_table", block_table), ("seq_lens", seq_lens)):
        if not tensor.is_cpu:
            raise ValueError(
                f"{name} is on {tensor.device}; the compiled kernels run on the CPU: use the portable ones"
            )
    num_reqs = query_start_loc.shape[0] - 1
    raise ValueError(
        f"query_start_loc describes {num_reqs} requests, seq_lens {seq_lens.shape[0]} and block_table "
        f"{block_table.shape[0]}; all must have as many, and last strides of 1"
    )
