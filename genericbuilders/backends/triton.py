"""Attention by this library's Triton kernels: decodes split over their keys, rows of several tokens in tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.paged import PagedImpl, PagedMetadata, PagedMetadataBuilder, check_layers, kernel_support
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import EngineConfig
from genericbuilders.kernels.select import AttentionKernels, Unavailable, find_kernels
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec

__all__ = ["TRITON", "TritonImpl", "TritonMetadata", "TritonMetadataBuilder"]


@dataclass
class TritonMetadata(PagedMetadata):
    """One batch for the Triton kernels, which find decodes and other rows in it themselves."""


class TritonMetadataBuilder(PagedMetadataBuilder[TritonMetadata, AttentionSpec]):
    """Every field is there already: the batch is described once, on the host, for all groups.

    Raises:
        ValueError: the spec asks for what this back end does not compute (chunks, quantised caches, values of another
            size), or a layer's heads or window are not those of the spec.
    """

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        check_layers("triton", kv_cache_spec, layer_names, config)

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: AttentionSpec) -> AttentionCGSupport:
        """Any batch: its rows are read on the device, and the launch depends on bounds alone. See `kernel_support`."""
        return kernel_support(kv_cache_spec)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> TritonMetadata:
        common = common_attn_metadata
        return TritonMetadata(
            common.num_actual_tokens,
            common.max_query_len,
            common.query_start_loc,
            common.max_seq_len,
            common.seq_lens,
            common.block_table_tensor,
            common.slot_mapping,
            common.causal,
        )


class TritonImpl(PagedImpl[TritonMetadata]):
    """Writes the new keys and values, then attends, by the Triton kernels wherever they can run."""

    @override
    def choose_kernels(self, device: torch.device, dtype: torch.dtype) -> AttentionKernels:
        found = find_kernels("triton", device, dtype)
        return super().choose_kernels(device, dtype) if isinstance(found, Unavailable) else found


TRITON = BackendAdapter("triton", TritonMetadataBuilder, TritonImpl)
