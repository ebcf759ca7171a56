"""Which kernels to run: by device and dtype, or by name."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from genericbuilders.kernels import elementwise, portable, reference, varlen
from genericbuilders.kernels.native import NativeKernels, Unavailable, native_kernels
from genericbuilders.kernels.native.checks import DTYPES
from genericbuilders.kernels.protocols import (
    GatedActivation,
    PagedAttention,
    RmsNorm,
    RopeAndCache,
    VarlenAttention,
    WriteKVCache,
)
from genericbuilders.kernels.triton.attention import DTYPES as TRITON_DTYPES
from genericbuilders.kernels.triton.attention import TritonAttention
from genericbuilders.kernels.triton.find import find_triton, triton_kernels

__all__ = ["KERNEL_NAMES", "AttentionKernels", "Unavailable", "find_kernels", "select_kernels"]

# Fastest first.
KERNEL_NAMES = ("native", "triton", "portable", "reference")


@dataclass(frozen=True)
class AttentionKernels:
    """One implementation of everything between a model's linear layers.

    Attributes:
        name: one of `KERNEL_NAMES`.
        write_kv_cache: store keys and values into a paged cache.
        paged_attention: attention over a paged cache.
        varlen_attention: attention without a cache.
        rope_and_cache: rotary embedding of queries and keys, and the write to the cache.
        rms_norm: root-mean-square normalisation with the residual's addition.
        silu_and_mul: SwiGLU's activation.
        gelu_tanh_and_mul: GeGLU's activation, in the tanh form.
    """

    name: str
    write_kv_cache: WriteKVCache
    paged_attention: PagedAttention
    varlen_attention: VarlenAttention
    rope_and_cache: RopeAndCache
    rms_norm: RmsNorm
    silu_and_mul: GatedActivation
    gelu_tanh_and_mul: GatedActivation


def find_kernels(name: str, device: torch.device, dtype: torch.dtype) -> AttentionKernels | Unavailable:
    """The implementation called ``name``, or why it cannot run on this device and dtype.

    Raises:
        ValueError: there is no such implementation.
    """
    if name == "reference":
        return _in_torch(name, reference.write_kv_cache, reference.paged_attention, reference.varlen_attention)
    if name == "portable":
        return _in_torch(name, portable.write_kv_cache, portable.paged_attention, varlen.varlen_attention)
    if name == "triton":
        return _triton_on(device, dtype)
    if name != "native":
        raise ValueError(f"there are no kernels called {name!r}; there are {', '.join(KERNEL_NAMES)}")
    if device.type != "cpu":
        return Unavailable(f"the compiled kernels run on the CPU, not on {device}")
    if dtype not in DTYPES:
        return Unavailable(f"the compiled kernels take {', '.join(map(str, DTYPES))}, not {dtype}")
    native = native_kernels()
    return _compiled(native) if isinstance(native, NativeKernels) else native


def select_kernels(device: torch.device, dtype: torch.dtype, name: str | None = None) -> AttentionKernels:
    """The fastest kernels for a device and dtype, or those called ``name``.

    Args:
        device: where the cache and the activations are.
        dtype: of cache and activations.
        name: one of `KERNEL_NAMES`; ``None`` chooses.

    Raises:
        ValueError: there are no kernels of that name, or they cannot run here (with the reason).
    """
    if name is None:
        found = find_kernels("triton" if device.type == "cuda" else "native", device, dtype)
        return found if isinstance(found, AttentionKernels) else select_kernels(device, dtype, "portable")
    found = find_kernels(name, device, dtype)
    if isinstance(found, Unavailable):
        raise ValueError(f"the kernels {name!r} are not available: {found.reason}")
    return found


def _triton_on(device: torch.device, dtype: torch.dtype) -> AttentionKernels | Unavailable:
    found = find_triton(device)
    if isinstance(found, Unavailable):
        return found
    if dtype not in TRITON_DTYPES:
        return Unavailable(f"the Triton kernels take {', '.join(map(str, TRITON_DTYPES))}, not {dtype}")
    return _in_triton()


@functools.cache
def _in_triton() -> AttentionKernels:
    """Attention in Triton, all else in torch; Triton is imported when something is first attended to."""
    attention = TritonAttention(triton_kernels)
    return _in_torch("triton", portable.write_kv_cache, attention.paged_attention, attention.varlen_attention)


def _in_torch(
    name: str, write_kv_cache: WriteKVCache, paged_attention: PagedAttention, varlen_attention: VarlenAttention
) -> AttentionKernels:
    return AttentionKernels(
        name=name,
        write_kv_cache=write_kv_cache,
        paged_attention=paged_attention,
        varlen_attention=varlen_attention,
        rope_and_cache=elementwise.rope_and_cache,
        rms_norm=elementwise.rms_norm,
        silu_and_mul=elementwise.silu_and_mul,
        gelu_tanh_and_mul=elementwise.gelu_tanh_and_mul,
    )


def _compiled(native: NativeKernels) -> AttentionKernels:
    return AttentionKernels(
        name="native",
        write_kv_cache=native.write_kv_cache,
        paged_attention=native.paged_attention,
        varlen_attention=native.varlen_attention,
        rope_and_cache=native.rope_and_cache,
        rms_norm=native.rms_norm,
        silu_and_mul=native.silu_and_mul,
        gelu_tanh_and_mul=native.gelu_tanh_and_mul,
    )
