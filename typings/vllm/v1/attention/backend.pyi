from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import KVCacheLayout, KVCacheSpec

M = TypeVar("M")
T = TypeVar("T", bound=AttentionMetadata)

class AttentionType(str, Enum):
    DECODER = "decoder"
    ENCODER = "encoder"
    ENCODER_ONLY = "encoder_only"
    ENCODER_DECODER = "encoder_decoder"

class AttentionCGSupport(Enum):
    ALWAYS = 3
    UNIFORM_BATCH = 2
    UNIFORM_SINGLE_TOKEN_DECODE = 1
    NEVER = 0

class AttentionMetadata: ...

@dataclass
class CommonAttentionMetadata:
    query_start_loc: torch.Tensor
    query_start_loc_cpu: torch.Tensor
    seq_lens: torch.Tensor
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    block_table_tensor: torch.Tensor
    slot_mapping: torch.Tensor
    causal: bool | torch.Tensor = ...
    logits_indices_padded: torch.Tensor | None = ...
    num_logits_indices: int | None = ...
    max_logits_per_req: int | None = ...
    encoder_seq_lens: torch.Tensor | None = ...
    encoder_seq_lens_cpu: npt.NDArray[np.generic] | None = ...
    dcp_local_seq_lens: torch.Tensor | None = ...
    dcp_local_seq_lens_cpu_upper_bound: torch.Tensor | None = ...
    positions: torch.Tensor | None = ...
    is_prefilling: torch.Tensor | None = ...
    seq_lens_cpu_upper_bound: torch.Tensor | None = ...
    req_idx: npt.NDArray[np.generic] | None = ...
    mm_req_doc_ranges: dict[int, list[tuple[int, int]]] | None = ...
    rswa_prefix_lens: torch.Tensor | None = ...
    replayssm_decode_base_cpu: torch.Tensor | None = ...
    def compute_num_computed_tokens(self) -> torch.Tensor: ...

class AttentionMetadataBuilder(ABC, Generic[M]):
    layer_names: list[str]
    vllm_config: VllmConfig
    device: torch.device
    reorder_batch_threshold: int | None
    requires_block_table_width: ClassVar[bool]
    _cudagraph_support: ClassVar[AttentionCGSupport]
    # Abstract at run time, with a body for subclasses to call.
    def __init__(
        self, kv_cache_spec: KVCacheSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None: ...
    @classmethod
    def get_cudagraph_support(cls, vllm_config: VllmConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport: ...
    @abstractmethod
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = ...
    ) -> M: ...
    def update_block_table(self, metadata: M, blk_table: torch.Tensor, slot_mapping: torch.Tensor) -> M: ...
    def build_for_cudagraph_capture(self, common_attn_metadata: CommonAttentionMetadata) -> M: ...
    def build_for_drafting(self, common_attn_metadata: CommonAttentionMetadata, draft_index: int) -> M: ...

class AttentionBackend(ABC):
    supported_dtypes: ClassVar[list[torch.dtype]]
    supported_kv_cache_dtypes: ClassVar[list[str]]
    forward_includes_kv_cache_update: bool
    @staticmethod
    @abstractmethod
    def get_name() -> str: ...
    @staticmethod
    @abstractmethod
    def get_impl_cls() -> type[AttentionImplBase[Any]]: ...
    @staticmethod
    @abstractmethod
    def get_builder_cls() -> type[AttentionMetadataBuilder[Any]]: ...
    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...] | None: ...
    @classmethod
    def supports_kv_connector(cls) -> bool: ...
    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool: ...
    @classmethod
    def validate_configuration(
        cls,
        head_size: int,
        dtype: torch.dtype,
        kv_cache_dtype: str | None,
        block_size: int | None,
        use_mla: bool,
        has_sink: bool,
        use_sparse: bool,
        use_mm_prefix: bool,
        use_per_head_quant_scales: bool,
        device_capability: Any,
        attn_type: str,
        has_sliding_window: bool = ...,
        use_non_causal: bool = ...,
        use_batch_invariant: bool = ...,
        use_kv_connector: bool = ...,
        use_pcp: bool = ...,
        use_adaptive_verification: bool = ...,
        use_dcp: bool = ...,
        use_rswa: bool = ...,
    ) -> list[str]: ...
    @classmethod
    def supports_combination(
        cls,
        head_size: int,
        dtype: torch.dtype,
        kv_cache_dtype: str | None,
        block_size: int | None,
        use_mla: bool,
        has_sink: bool,
        use_sparse: bool,
        use_mm_prefix: bool,
        device_capability: Any,
    ) -> str | None: ...

class AttentionLayer(Protocol): ...

class AttentionImplBase(ABC, Generic[T]):
    num_heads: int
    head_size: int
    scale: float

class AttentionImpl(AttentionImplBase[T], Generic[T]):
    kv_cache_dtype: str
    @abstractmethod
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = ...,
        alibi_slopes: list[float] | None = ...,
        sliding_window: int | None = ...,
        kv_cache_dtype: str = ...,
        logits_soft_cap: float | None = ...,
        attn_type: str = ...,
        kv_sharing_target_layer_name: str | None = ...,
    ) -> None: ...
    @abstractmethod
    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: T,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = ...,
        output_block_scale: torch.Tensor | None = ...,
    ) -> torch.Tensor: ...
