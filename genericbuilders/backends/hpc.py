"""Attention by Tencent's hpc-ops where it is installed, decodes planned once a batch; elsewhere by our own kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.paged import (
    PagedImpl,
    PagedMetadata,
    PagedMetadataBuilder,
    RowSplit,
    check_layers,
    kernel_support,
    split_rows,
)
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.kernels.hpc import CAPABILITY, HpcFunctions, find_hpc, load_hpc, why_not_hpc
from genericbuilders.kernels.ints import Ints, tensor_of
from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.packages import imported_once
from genericbuilders.kernels.select import AttentionKernels
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec

__all__ = ["HPC", "HpcImpl", "HpcMetadata", "HpcMetadataBuilder"]

# Tokens below which dividing a decode among multiprocessors is not worth it.
MIN_SPLIT = 1024


@dataclass
class HpcMetadata(PagedMetadata):
    """One batch, and what hpc-ops is told of it; names mean what they mean in vLLM.

    Attributes:
        num_decodes: rows at the front of ``decode_query_len`` tokens each, and padding behind them if no other rows
            are there.
        num_decode_tokens: their tokens.
        num_prefills: rows behind them.
        num_prefill_tokens: their tokens.
        qo_indptr: ``[num_prefills + 1]`` int32: where each prefill's tokens start, from 0; ``None`` without any.
        decode_query_len: tokens of each decode: 1, or 1 and its draft tokens.
        qo_indptr_decode: ``[num_decodes + 1]`` int32: where each decode's tokens start; ``None`` without any.
        num_drafts: draft tokens that a decode may have.
        task_map: how the decodes are divided among multiprocessors; ``None`` where hpc-ops does not run.
    """

    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    num_prefill_tokens: int
    qo_indptr: Tensor | None
    decode_query_len: int
    qo_indptr_decode: Tensor | None
    num_drafts: int
    task_map: Tensor | None = None


class HpcMetadataBuilder(PagedMetadataBuilder[HpcMetadata, FullAttentionSpec]):
    """Puts decodes, drafts included, before all other rows, and plans them where hpc-ops runs.

    Raises:
        ValueError: the spec asks for what this back end does not compute (chunks, quantised caches, values of another
            size), or a layer's heads or window are not those of the spec.
    """

    def __init__(
        self, kv_cache_spec: FullAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        check_layers("hpc", kv_cache_spec, layer_names, config)
        taken = any(
            isinstance(layer := config.layers[name], AttentionLayerConfig)
            and why_not_hpc(layer, kv_cache_spec.dtype, kv_cache_spec.block_size, config.num_speculative_tokens) is None
            for name in layer_names
        )
        self._functions = find_functions(device) if taken else None
        self._task_map: Tensor | None = None
        if self._functions is not None:
            self._task_map = self._functions.task_map(
                config.max_num_seqs, config.max_model_len, kv_cache_spec.num_kv_heads, min_process_len=MIN_SPLIT
            )

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: FullAttentionSpec) -> AttentionCGSupport:
        """Decodes, with their draft tokens where there are some, as far as our own kernels can be captured, too."""
        rule = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
        if config.num_speculative_tokens:
            rule = AttentionCGSupport.UNIFORM_BATCH
        return min(rule, kernel_support(kv_cache_spec))

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> HpcMetadata:
        common, drafts = common_attn_metadata, self.config.num_speculative_tokens
        split = split_rows(common, 1 + drafts)
        decodes, starts = split.num_decodes, common.query_start_loc
        if decodes and self._functions is not None and self._task_map is not None:
            self._functions.assign(
                common.seq_lens[:decodes],
                self._task_map,
                self.kv_cache_spec.num_kv_heads,
                split.decode_query_len,
                new_kv_included=True,
                min_process_len=MIN_SPLIT,
            )
        return HpcMetadata(
            common.num_actual_tokens,
            common.max_query_len,
            starts,
            common.max_seq_len,
            common.seq_lens,
            common.block_table_tensor,
            common.slot_mapping,
            common.causal,
            decodes,
            split.num_decode_tokens,
            split.num_prefills,
            split.num_prefill_tokens,
            self._prefill_starts(common, split) if split.num_prefills else None,
            split.decode_query_len,
            starts[: decodes + 1] if decodes else None,
            drafts,
            self._task_map,
        )

    def _prefill_starts(self, common: CommonAttentionMetadata, split: RowSplit) -> Tensor:
        if self.device.type != "cpu":
            return common.query_start_loc[split.num_decodes :] - split.num_decode_tokens
        starts: Ints = common.query_start_loc_cpu.numpy()[split.num_decodes :]
        return tensor_of(starts - starts.dtype.type(split.num_decode_tokens))


class HpcImpl(PagedImpl[HpcMetadata]):
    """Writes the new keys and values, then attends, by hpc-ops for the layers that it takes."""

    @override
    def attend(
        self,
        kernels: AttentionKernels,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        metadata: HpcMetadata,
    ) -> Tensor:
        functions = None
        if metadata.task_map is not None and metadata.causal:
            reason = why_not_hpc(self.layer, key_cache.dtype, key_cache.shape[1], metadata.num_drafts)
            functions = find_functions(key_cache.device) if reason is None else None
        if functions is None or metadata.task_map is None:
            return super().attend(kernels, query, key_cache, value_cache, metadata)
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        decoded, tokens, drafts = metadata.num_decode_tokens, metadata.num_actual_tokens, metadata.decode_query_len - 1
        # Padding among the decodes has no tokens.
        rows = decoded // metadata.decode_query_len
        if rows:
            functions.decode(
                query[:decoded].contiguous(),
                key_cache,
                value_cache,
                metadata.block_table[:rows],
                metadata.seq_lens[:rows],
                mtp=drafts,
                new_kv_included=True,
                splitk=True,
                task_map=metadata.task_map,
                output=out[:decoded],
            )
        if metadata.qo_indptr is not None:
            rest = slice(metadata.num_decodes, metadata.num_decodes + metadata.num_prefills)
            functions.prefill(
                query[decoded:tokens].contiguous(),
                key_cache,
                value_cache,
                metadata.qo_indptr,
                metadata.block_table[rest],
                metadata.seq_lens[rest],
                metadata.max_query_len,
                output=out[decoded:tokens],
            )
        out[tokens:] = 0
        return out


@functools.cache
def find_functions(device: torch.device) -> HpcFunctions | None:
    """What is used of hpc-ops on a CUDA device that it is made for, where it is installed; imported here."""
    if device.type != "cuda" or isinstance(find_hpc(), Unavailable):
        return None
    if torch.cuda.get_device_capability(device) != CAPABILITY:
        return None
    found = imported_once("hpc-ops", load_hpc)()
    return None if isinstance(found, Unavailable) else found


HPC = BackendAdapter("hpc", HpcMetadataBuilder, HpcImpl)
