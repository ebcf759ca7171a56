"""FlashInfer, as far as it is used: found without importing it, and the shapes of what is imported."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

import torch
from torch import Tensor

from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.packages import find_package

__all__ = [
    "DecodeWrapper",
    "FlashInferFunctions",
    "MakesDecode",
    "MakesPrefill",
    "PrefillWrapper",
    "find_flashinfer",
    "load_flashinfer",
]


def find_flashinfer() -> str | Unavailable:
    """The version of flashinfer-python, or why it cannot be used; it is not imported."""
    return find_package("flashinfer", "flashinfer-python", (0, 2))


class DecodeWrapper(Protocol):
    """``BatchDecodeWithPagedKVCacheWrapper``, as far as it is used here."""

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        window_left: int,
        logits_soft_cap: float | None,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        sm_scale: float,
    ) -> None:
        """Look at the rows' pages; see `genericbuilders.kernels.flashinfer.PageInputs`."""
        ...

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor], *, out: Tensor) -> Tensor:
        """Attend: row ``i`` has one token, ``q[i]``."""
        ...


class PrefillWrapper(Protocol):
    """``BatchPrefillWithPagedKVCacheWrapper``, as far as it is used here."""

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool,
        sm_scale: float,
        window_left: int,
        logits_soft_cap: float | None,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        """Look at the rows' tokens and pages; see `genericbuilders.kernels.flashinfer.PageInputs`."""
        ...

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor], *, out: Tensor) -> Tensor:
        """Attend: row ``i`` has the tokens from ``qo_indptr[i]`` to the next entry."""
        ...


class MakesDecode(Protocol):
    """Constructs a `DecodeWrapper`."""

    def __call__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str,
        *,
        use_cuda_graph: bool,
        use_tensor_cores: bool,
        paged_kv_indptr_buffer: Tensor | None,
        paged_kv_indices_buffer: Tensor | None,
        paged_kv_last_page_len_buffer: Tensor | None,
    ) -> DecodeWrapper:
        """A wrapper; with ``use_cuda_graph`` for as many rows as its buffers have, which `plan` writes to."""
        ...


class MakesPrefill(Protocol):
    """Constructs a `PrefillWrapper`."""

    def __call__(self, float_workspace_buffer: Tensor, kv_layout: str) -> PrefillWrapper:
        """A wrapper for batches of any size."""
        ...


@dataclass(frozen=True)
class FlashInferFunctions:
    """What is used of FlashInfer.

    Attributes:
        decode: its wrapper of decodes.
        prefill: its wrapper of all other rows.
    """

    decode: MakesDecode
    prefill: MakesPrefill


def load_flashinfer() -> FlashInferFunctions:
    """Import FlashInfer.

    Raises:
        ImportError: that fails, or it lacks something.
    """
    module = import_module("flashinfer")
    return FlashInferFunctions(
        decode=module.BatchDecodeWithPagedKVCacheWrapper, prefill=module.BatchPrefillWithPagedKVCacheWrapper
    )
