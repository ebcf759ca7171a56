"""Calls into the compiled kernels: tensors become pointers and strides, faults become exceptions."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from genericbuilders.kernels.native.attention import CACHE, NativeAttention
from genericbuilders.kernels.native.checks import DTYPES, raise_fault, refuse_rope, refuse_rows, refuse_write

__all__ = ["NativeKernels"]

# The layouts of args.h's structures, all fields 64 bits wide.
_ROPE = struct.Struct(f"={CACHE}23q")
_NORM = struct.Struct("=11qd")
_GATED = struct.Struct("=9q")


class NativeKernels(NativeAttention):
    """The compiled kernels; each method has the signature of its protocol in `genericbuilders.kernels.protocols`.

    Tensors are on the CPU, all of one dtype: float32, bfloat16 or float16. Only the last stride has to be 1. The
    number of threads follows ``torch.get_num_threads()``; results do not depend on it, and a row's result not on
    the other rows.

    Args:
        path: the shared library that `genericbuilders.kernels.native.build.build_library` made.

    Raises:
        OSError: it cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        library = ctypes.CDLL(str(path))
        super().__init__(_entry(library, "gb_paged_attention"))
        self._rope = _entry(library, "gb_rope_and_cache")
        self._norm = _entry(library, "gb_rms_norm")
        self._gated = _entry(library, "gb_gated")

    def __repr__(self) -> str:
        return f"NativeKernels({self.path})"

    def write_kv_cache(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """Store keys and values; see `genericbuilders.kernels.protocols.WriteKVCache`.

        Raises:
            ValueError: shapes or strides that do not fit, or a slot outside the cache.
            TypeError: dtypes that differ or are not supported.
        """
        num_tokens, num_kv_heads, head_size = key.shape
        num_blocks, block_size, cache_heads, cache_head_size = key_cache.shape
        value_head_size = value.shape[2]
        key_strides, value_strides = key.stride(), value.stride()
        kept_key, kept_value = key_cache.stride(), value_cache.stride()
        dtype = DTYPES.get(key.dtype)
        if (
            dtype is None
            or not (key.dtype == value.dtype == key_cache.dtype == value_cache.dtype)
            or not (key_strides[2] == value_strides[2] == kept_key[3] == kept_value[3] == 1)
            or cache_heads != num_kv_heads
            or cache_head_size != head_size
            or value.shape != (num_tokens, num_kv_heads, value_head_size)
            or value_cache.shape != (num_blocks, block_size, num_kv_heads, value_head_size)
            or not (key.is_cpu and key_cache.is_cpu and slot_mapping.is_cpu)
            or slot_mapping.dtype != torch.int64
            or slot_mapping.shape[0] < num_tokens
            or slot_mapping.stride(0) != 1
        ):
            refuse_write(key, value, key_cache, value_cache, slot_mapping)
        fault = self._rope(
            _ROPE.pack(
                num_blocks, block_size, num_kv_heads, head_size, value_head_size,
                key_cache.data_ptr(), kept_key[0], kept_key[1], kept_key[2],
                value_cache.data_ptr(), kept_value[0], kept_value[1], kept_value[2],
                torch.get_num_threads(), dtype, num_tokens, 0, 0, 0,
                0, 0, 0, 0, 0, 0,
                key.data_ptr(), key_strides[0], key_strides[1],
                value.data_ptr(), value_strides[0], value_strides[1],
                0, 0, 0, 0, slot_mapping.data_ptr(),
            )
        )  # fmt: skip
        if fault:
            raise_fault(fault, slot_mapping=slot_mapping, num_slots=num_blocks * block_size)

    def rope_and_cache(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cos: Tensor,
        sin: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        slot_mapping: Tensor,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        """Rotate and store; see `genericbuilders.kernels.protocols.RopeAndCache`.

        Raises:
            ValueError: shapes or strides that do not fit, or a slot outside the cache.
            TypeError: dtypes that differ or are not supported.
        """
        if out is None:
            out = query
        num_tokens, num_heads, head_size = query.shape
        num_blocks, block_size, num_kv_heads, cache_head_size = key_cache.shape
        value_head_size = value.shape[2]
        rotary_dim = cos.shape[1]
        query_strides, out_strides = query.stride(), out.stride()
        key_strides, value_strides = key.stride(), value.stride()
        kept_key, kept_value = key_cache.stride(), value_cache.stride()
        cos_strides, sin_strides = cos.stride(), sin.stride()
        dtype = DTYPES.get(query.dtype)
        if (
            dtype is None
            or not (query.dtype == out.dtype == key.dtype == value.dtype == key_cache.dtype == value_cache.dtype)
            or not (query_strides[2] == out_strides[2] == key_strides[2] == value_strides[2] == 1)
            or not (kept_key[3] == kept_value[3] == cos_strides[1] == sin_strides[1] == 1)
            or cache_head_size != head_size
            or key.shape != (num_tokens, num_kv_heads, head_size)
            or value.shape != (num_tokens, num_kv_heads, value_head_size)
            or value_cache.shape != (num_blocks, block_size, num_kv_heads, value_head_size)
            or out.shape != query.shape
            or cos.dtype != sin.dtype
            or (cos.dtype != query.dtype and cos.dtype != torch.float32)
            or not (cos.shape[0] == sin.shape[0] == num_tokens)
            or sin.shape[1] != rotary_dim
            or rotary_dim > head_size
            or rotary_dim % 2
            or not (query.is_cpu and key_cache.is_cpu and slot_mapping.is_cpu and cos.is_cpu)
            or slot_mapping.dtype != torch.int64
            or slot_mapping.shape[0] < num_tokens
            or slot_mapping.stride(0) != 1
        ):
            refuse_rope(query, key, value, cos, sin, key_cache, value_cache, slot_mapping, out)
        fault = self._rope(
            _ROPE.pack(
                num_blocks, block_size, num_kv_heads, head_size, value_head_size,
                key_cache.data_ptr(), kept_key[0], kept_key[1], kept_key[2],
                value_cache.data_ptr(), kept_value[0], kept_value[1], kept_value[2],
                torch.get_num_threads(), dtype, num_tokens, num_heads, rotary_dim, cos.dtype == torch.float32,
                query.data_ptr(), query_strides[0], query_strides[1],
                out.data_ptr(), out_strides[0], out_strides[1],
                key.data_ptr(), key_strides[0], key_strides[1],
                value.data_ptr(), value_strides[0], value_strides[1],
                cos.data_ptr(), cos_strides[0], sin.data_ptr(), sin_strides[0], slot_mapping.data_ptr(),
            )
        )  # fmt: skip
        if fault:
            raise_fault(fault, slot_mapping=slot_mapping, num_slots=num_blocks * block_size)
        return out

    def rms_norm(
        self,
        hidden: Tensor,
        weight: Tensor,
        epsilon: float,
        *,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Normalise; see `genericbuilders.kernels.protocols.RmsNorm`.

        Raises:
            ValueError: shapes or strides that do not fit.
            TypeError: dtypes that differ or are not supported.
        """
        if out is None:
            out = torch.empty_like(hidden)
        num_tokens, size = hidden.shape
        hidden_strides, out_strides = hidden.stride(), out.stride()
        dtype = DTYPES.get(hidden.dtype)
        bad = (
            dtype is None
            or not (hidden.dtype == weight.dtype == out.dtype)
            or not (hidden_strides[1] == out_strides[1] == weight.stride(0) == 1)
            or weight.shape != (size,)
            or out.shape != hidden.shape
            or not (hidden.is_cpu and weight.is_cpu)
        )
        residual_pointer = residual_stride = 0
        if residual is not None:
            residual_pointer, (residual_stride, last) = residual.data_ptr(), residual.stride()
            bad = bad or last != 1 or residual.dtype != hidden.dtype or residual.shape != hidden.shape
        if bad or dtype is None:
            refuse_rows(hidden=hidden, out=out, weight=weight, residual=residual)
        self._norm(
            _NORM.pack(
                torch.get_num_threads(), dtype, num_tokens, size,
                hidden.data_ptr(), hidden_strides[0], residual_pointer, residual_stride,
                weight.data_ptr(), out.data_ptr(), out_strides[0], epsilon,
            )
        )  # fmt: skip
        return out

    def silu_and_mul(self, gate_up: Tensor, *, out: Tensor | None = None) -> Tensor:
        """``silu(gate) * up``; see `genericbuilders.kernels.protocols.GatedActivation`.

        Raises:
            ValueError: shapes or strides that do not fit.
            TypeError: dtypes that differ or are not supported.
        """
        return self._activate(0, gate_up, out)

    def gelu_tanh_and_mul(self, gate_up: Tensor, *, out: Tensor | None = None) -> Tensor:
        """``gelu(gate) * up`` in the tanh form; see `genericbuilders.kernels.protocols.GatedActivation`.

        Raises:
            ValueError: shapes or strides that do not fit.
            TypeError: dtypes that differ or are not supported.
        """
        return self._activate(1, gate_up, out)

    def _activate(self, activation: int, gate_up: Tensor, out: Tensor | None) -> Tensor:
        num_tokens, width = gate_up.shape
        if out is None:
            out = gate_up.new_empty(num_tokens, width // 2)
        strides, out_strides = gate_up.stride(), out.stride()
        dtype = DTYPES.get(gate_up.dtype)
        if (
            dtype is None
            or out.dtype != gate_up.dtype
            or not (strides[1] == out_strides[1] == 1)
            or width % 2
            or out.shape != (num_tokens, width // 2)
            or not (gate_up.is_cpu and out.is_cpu)
        ):
            refuse_rows(gate_up=gate_up, out=out)
        self._gated(
            _GATED.pack(
                torch.get_num_threads(), dtype, activation, num_tokens, width // 2,
                gate_up.data_ptr(), strides[0], out.data_ptr(), out_strides[0],
            )
        )  # fmt: skip
        return out


def _entry(library: ctypes.CDLL, name: str) -> Callable[[bytes], int]:
    """One of the library's functions: it takes its packed arguments and returns a fault, 0 for none."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)((name, library))
