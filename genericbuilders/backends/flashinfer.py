"""Attention by FlashInfer where it is installed, planned once a batch; elsewhere by this library's own kernels."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.paged import (
    PagedImpl,
    PagedMetadata,
    check_layers,
    plain_cache_shape,
    refusals,
    split_rows,
)
from genericbuilders.builder import AttentionCGSupport, AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.kernels.flashinfer import (
    FlashInferPlan,
    FlashInferPlanner,
    Heads,
    PageInputs,
    page_inputs,
    why_not_flashinfer,
)
from genericbuilders.kernels.flashinfer_library import FlashInferFunctions, find_flashinfer, load_flashinfer
from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.packages import imported_once
from genericbuilders.kernels.select import AttentionKernels
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, UniformTypeKVCacheSpecs, cdiv, iter_layer_specs

__all__ = ["FLASHINFER", "FlashInferImpl", "FlashInferMetadata", "FlashInferMetadataBuilder", "FlashInferSpec"]

FlashInferSpec: TypeAlias = AttentionSpec | UniformTypeKVCacheSpecs
"""A cache of keys and values, or those of several layers that share one block table."""


@dataclass
class FlashInferMetadata(PagedMetadata):
    """One batch, and what FlashInfer is told of it; names mean what they mean in vLLM.

    Attributes:
        num_decodes: rows at the front that bring one token each, and padding behind them if no other rows are there.
        num_decode_tokens: their tokens.
        num_prefills: rows behind them.
        num_prefill_tokens: their tokens.
        pages: the rows' tokens and pages.
        plans: the batch, planned for the layers that FlashInfer takes; empty where it does not run.
    """

    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    num_prefill_tokens: int
    pages: PageInputs
    plans: Mapping[Heads, FlashInferPlan] = field(default_factory=dict[Heads, FlashInferPlan])

    @property
    def qo_indptr(self) -> Tensor:
        """``[num_reqs + 1]`` int32, on the host: where each row's new tokens start."""
        return self.pages.qo_indptr

    @property
    def paged_kv_indptr(self) -> Tensor:
        """``[num_reqs + 1]`` int32, on the host: where each row's pages start."""
        return self.pages.paged_kv_indptr

    @property
    def paged_kv_indices(self) -> Tensor:
        """``[paged_kv_indptr[-1]]`` int32: the rows' blocks, one row behind the other."""
        return self.pages.paged_kv_indices

    @property
    def paged_kv_last_page_len(self) -> Tensor:
        """``[num_reqs]`` int32, on the host: tokens in each row's last block; 0 for a row without any."""
        return self.pages.paged_kv_last_page_len


class FlashInferMetadataBuilder(AttentionMetadataBuilder[FlashInferMetadata, FlashInferSpec]):
    """Lists the batch's pages, and plans it once for all layers of the same heads.

    A group may come wrapped as uniform specs: it is unwrapped here, and each layer checked against its own spec.

    Raises:
        ValueError: a layer's spec asks for what this back end does not compute (chunks, quantised caches, values of
            another size, states), or its heads or window are not those of its spec.
    """

    def __init__(
        self, kv_cache_spec: FlashInferSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        heads: dict[Heads, None] = {}
        for name in self.layer_names:
            spec = _layer_spec(kv_cache_spec, name)
            check_layers("flashinfer", spec, [name], config)
            layer = config.layers[name]
            if isinstance(layer, AttentionLayerConfig) and _why_not(layer, spec.dtype) is None:
                heads[_heads(layer, layer.causal, spec.dtype)] = None
        self._heads = tuple(heads)
        self._planner = find_planner(device)

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: FlashInferSpec) -> AttentionCGSupport:
        """Decodes of one token, if every attention layer among the specs is one that this back end serves.

        Layers that are no attention, as states, are another back end's affair and say nothing here.
        """
        specs = [spec for spec in iter_layer_specs(kv_cache_spec) if isinstance(spec, AttentionSpec)]
        if not specs or any(refusals(spec) for spec in specs):
            return AttentionCGSupport.NEVER
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    @classmethod
    @override
    def get_kv_cache_shape(cls, num_blocks: int, kv_cache_spec: FlashInferSpec) -> tuple[int, ...]:
        """``[num_blocks, 2, num_kv_heads, block_size, head_size]``, which is FlashInfer's layout HND.

        Raises:
            ValueError: the layers' caches have different shapes; ask for each layer's own spec.
        """
        return plain_cache_shape(num_blocks, _one_cache(kv_cache_spec))

    @classmethod
    @override
    def get_kv_cache_dtype(cls, kv_cache_spec: FlashInferSpec) -> torch.dtype:
        return _one_cache(kv_cache_spec).dtype

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashInferMetadata:
        return self._build(common_attn_metadata, None)

    @override
    def build_for_cudagraph_capture(self, common_attn_metadata: CommonAttentionMetadata) -> FlashInferMetadata:
        """As `build`, with buffers of the graph's own: a later batch of as many decodes is planned into them."""
        common = common_attn_metadata
        pages = cdiv(self.config.max_model_len, self.kv_cache_spec.block_size)
        return self._build(common, common.num_reqs * pages if common.max_query_len <= 1 else None)

    @override
    def update_block_table(
        self, metadata: FlashInferMetadata, blk_table: Tensor, slot_mapping: Tensor
    ) -> FlashInferMetadata:
        old = metadata.pages
        lengths = old.paged_kv_indptr.diff().sub_(1).mul_(old.page_size).add_(old.paged_kv_last_page_len).clamp_(min=0)
        pages = page_inputs(old.qo_indptr, lengths, blk_table, self.kv_cache_spec.block_size)
        plans = self._plan(pages, metadata.num_decodes, slot_mapping, metadata.causal, None)
        return replace(metadata, block_table=blk_table, slot_mapping=slot_mapping, pages=pages, plans=plans)

    def _build(self, common: CommonAttentionMetadata, capture_pages: int | None) -> FlashInferMetadata:
        split = split_rows(common)
        pages = page_inputs(
            common.query_start_loc_cpu,
            common.seq_lens_cpu,
            common.block_table_tensor,
            self.kv_cache_spec.block_size,
        )
        return FlashInferMetadata(
            common.num_actual_tokens,
            common.max_query_len,
            common.query_start_loc,
            common.max_seq_len,
            common.seq_lens,
            common.block_table_tensor,
            common.slot_mapping,
            common.causal,
            split.num_decodes,
            split.num_decode_tokens,
            split.num_prefills,
            split.num_prefill_tokens,
            pages,
            self._plan(pages, split.num_decodes, common.slot_mapping, common.causal, capture_pages),
        )

    def _plan(
        self, pages: PageInputs, num_decodes: int, slot_mapping: Tensor, causal: bool, capture_pages: int | None
    ) -> dict[Heads, FlashInferPlan]:
        planner = self._planner
        if planner is None:
            return {}
        plans: dict[Heads, FlashInferPlan] = {}
        for heads in self._heads:
            heads = replace(heads, causal=heads.causal and causal)
            if heads.sliding_window is not None and not heads.causal:
                continue
            plan = planner.plan(heads, pages, num_decodes, len(slot_mapping), capture_pages=capture_pages)
            if plan is not None:
                plans[heads] = plan
        return plans


class FlashInferImpl(PagedImpl[FlashInferMetadata]):
    """Writes the new keys and values, then attends, by FlashInfer where the batch is planned for such layers."""

    @override
    def attend(
        self,
        kernels: AttentionKernels,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        metadata: FlashInferMetadata,
    ) -> Tensor:
        if metadata.plans and _why_not(self.layer, key_cache.dtype) is None:
            plan = metadata.plans.get(_heads(self.layer, self.layer.causal and metadata.causal, key_cache.dtype))
            if plan is not None:
                return plan.run(query, key_cache, value_cache)
        return super().attend(kernels, query, key_cache, value_cache, metadata)


def find_planner(device: torch.device) -> FlashInferPlanner | None:
    """A planner for a CUDA device where FlashInfer is installed; it is imported when the first batch is planned."""
    if device.type != "cuda" or isinstance(find_flashinfer(), Unavailable):
        return None
    return FlashInferPlanner(_functions, device)


@functools.cache
def _functions() -> FlashInferFunctions | Unavailable:
    return imported_once("flashinfer-python", load_flashinfer)()


def _heads(layer: AttentionLayerConfig, causal: bool, dtype: torch.dtype) -> Heads:
    return Heads(
        layer.num_heads,
        layer.num_kv_heads,
        layer.head_size,
        layer.scale,
        causal,
        layer.sliding_window,
        layer.logits_soft_cap,
        dtype,
    )


def _why_not(layer: AttentionLayerConfig, dtype: torch.dtype) -> str | None:
    heads = _heads(layer, layer.causal, dtype)
    return why_not_flashinfer(heads, alibi=layer.alibi_slopes is not None, sinks=layer.sinks is not None)


def _layer_spec(spec: FlashInferSpec, name: str) -> AttentionSpec:
    """A layer's own spec, taken out of the wrapper.

    Raises:
        ValueError: the wrapper does not know the layer, or the layer's spec is no attention.
    """
    if not isinstance(spec, UniformTypeKVCacheSpecs):
        return spec
    own = spec.kv_cache_specs.get(name)
    if own is None:
        raise ValueError(f"layer {name!r} is not among those that its spec wraps: {sorted(spec.kv_cache_specs)}")
    if not isinstance(own, AttentionSpec):
        raise ValueError(f"layer {name!r} has a {type(own).__name__}; flashinfer serves attention alone")
    return own


def _one_cache(spec: FlashInferSpec) -> AttentionSpec:
    specs = [own for own in iter_layer_specs(spec) if isinstance(own, AttentionSpec)]
    shapes = {(own.num_kv_heads, own.block_size, own.head_size, own.dtype) for own in specs}
    if len(shapes) != 1:
        told = "; ".join(sorted(map(str, shapes))) or "none"
        raise ValueError(
            f"the layers' caches differ (heads, block, head size, dtype): {told}; ask for each layer's own spec"
        )
    return specs[0]


FLASHINFER = BackendAdapter("flashinfer", FlashInferMetadataBuilder, FlashInferImpl)
