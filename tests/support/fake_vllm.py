"""A stand-in for vLLM in ``sys.modules``: the names that the adapters use, with fields as in 0.32, and no more.

The peer lane checks the same conversions and builders against the real one.
"""

from __future__ import annotations

import importlib.machinery
import json
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["installed"]

M = TypeVar("M")


class AttentionCGSupport(Enum):
    ALWAYS = 3
    UNIFORM_BATCH = 2
    UNIFORM_SINGLE_TOKEN_DECODE = 1
    NEVER = 0


class MambaAttentionBackendEnum(Enum):
    MAMBA1 = "mamba1"
    MAMBA2 = "mamba2"
    LINEAR = "linear"
    GDN_ATTN = "gdn"


class KVQuantMode(IntEnum):
    NONE = 0
    FP8_PER_TENSOR = 1


@dataclass(frozen=True)
class KVCacheSpec:
    block_size: int
    dcp_sharded: bool = field(default=False, kw_only=True)
    block_stride_alignment: object = field(default=None, kw_only=True)

    @property
    def page_size_bytes(self) -> int:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class AttentionSpec(KVCacheSpec):
    dcp_sharded: bool = True
    max_tp_shards: int | None = None
    num_kv_heads: int
    head_size: int
    dtype: torch.dtype
    head_size_v: int
    kv_quant_mode: KVQuantMode = KVQuantMode.NONE
    page_size_padded: int | None = None
    num_head_slots: int | None = None
    state_content_bytes: int | None = None
    tokens_per_state: int | Fraction = 1

    @property
    def page_size_bytes(self) -> int:
        if self.page_size_padded is not None:
            return self.page_size_padded
        heads = self.num_head_slots or self.num_kv_heads
        content = self.state_content_bytes or (self.head_size + self.head_size_v) * self.dtype.itemsize
        return int(heads * content * self.block_size / Fraction(self.tokens_per_state))


@dataclass(frozen=True, kw_only=True)
class FullAttentionSpec(AttentionSpec):
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    non_causal: bool = False


@dataclass(frozen=True, kw_only=True)
class RSWASpec(FullAttentionSpec):
    rswa_window: int


@dataclass(frozen=True, kw_only=True)
class SinkFullAttentionSpec(FullAttentionSpec):
    sink_len: int | None = None


def _align(spec: MLAAttentionSpec | SlidingWindowMLASpec) -> None:
    if spec.alignment is not None:
        object.__setattr__(spec, "page_size_padded", None)
        content = spec.page_size_bytes
        object.__setattr__(spec, "page_size_padded", -(-content // spec.alignment) * spec.alignment)


@dataclass(frozen=True, kw_only=True)
class MLAAttentionSpec(FullAttentionSpec):
    cache_dtype_str: str | None = None
    alignment: int | None = None
    model_version: str | None = None
    is_index_group_leader: bool = False

    def __post_init__(self) -> None:
        _align(self)


@dataclass(frozen=True, kw_only=True)
class SlidingWindowSpec(AttentionSpec):
    sliding_window: int
    extra_retained_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class SlidingWindowMLASpec(SlidingWindowSpec):
    cache_dtype_str: str | None = None
    alignment: int | None = None
    model_version: str | None = None
    bounded_replay: bool = False

    def __post_init__(self) -> None:
        _align(self)


@dataclass(frozen=True, kw_only=True)
class ChunkedLocalAttentionSpec(AttentionSpec):
    attention_chunk_size: int


@dataclass(frozen=True, kw_only=True)
class CrossAttentionSpec(AttentionSpec): ...


@dataclass(frozen=True, kw_only=True)
class EncoderOnlyAttentionSpec(AttentionSpec): ...


@dataclass(frozen=True)
class MambaSpec(KVCacheSpec):
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    page_size_padded: int | None = None
    mamba_type: MambaAttentionBackendEnum = MambaAttentionBackendEnum.MAMBA2
    mamba_cache_mode: str = "none"
    num_speculative_blocks: int = 0
    tp_replicated: bool = False

    @property
    def page_size_bytes(self) -> int:
        pairs = zip(self.shapes, self.dtypes, strict=True)
        return self.page_size_padded or sum(prod(shape) * dtype.itemsize for shape, dtype in pairs)


@dataclass(frozen=True)
class UniformTypeKVCacheSpecs(KVCacheSpec):
    kv_cache_specs: dict[str, KVCacheSpec]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dcp_sharded", next(iter(self.kv_cache_specs.values())).dcp_sharded)

    @property
    def page_size_bytes(self) -> int:
        return sum(spec.page_size_bytes for spec in self.kv_cache_specs.values())


@dataclass
class CommonAttentionMetadata:
    query_start_loc: Tensor
    query_start_loc_cpu: Tensor
    seq_lens: Tensor
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    block_table_tensor: Tensor
    slot_mapping: Tensor
    causal: bool | Tensor = True
    logits_indices_padded: Tensor | None = None
    num_logits_indices: int | None = None
    max_logits_per_req: int | None = None
    encoder_seq_lens: Tensor | None = None
    encoder_seq_lens_cpu: npt.NDArray[np.generic] | None = None
    dcp_local_seq_lens: Tensor | None = None
    dcp_local_seq_lens_cpu_upper_bound: Tensor | None = None
    positions: Tensor | None = None
    is_prefilling: Tensor | None = None
    seq_lens_cpu_upper_bound: Tensor | None = None
    req_idx: npt.NDArray[np.generic] | None = None
    mm_req_doc_ranges: dict[int, list[tuple[int, int]]] | None = None
    rswa_prefix_lens: Tensor | None = None
    replayssm_decode_base_cpu: Tensor | None = None


@dataclass
class CacheConfig:
    block_size: int
    num_gpu_blocks: int | None = None
    mamba_cache_mode: str = "none"
    mamba_block_size: int | None = None


@dataclass
class VllmConfig:
    """What was handed to ``EngineArgs``, and whether it is the current one."""

    cache_config: CacheConfig
    given: dict[str, object] = field(default_factory=dict[str, object])
    model: dict[str, object] = field(default_factory=dict[str, object])
    current: bool = False


class EngineArgs:
    def __init__(self, *, model: str, block_size: int, **given: object) -> None:
        self.model: dict[str, object] = json.loads((Path(model) / "config.json").read_text())
        self.block_size = block_size
        self.given = given

    def create_engine_config(self) -> VllmConfig:
        return VllmConfig(CacheConfig(self.block_size), self.given, self.model)


@contextmanager
def set_current_vllm_config(vllm_config: VllmConfig) -> Generator[None]:
    vllm_config.current = True
    yield
    vllm_config.current = False


def get_block_table_width(max_num_blocks: int, block_size: int) -> int:
    return -(-max_num_blocks // 128) * 128


class AttentionMetadataBuilder(ABC, Generic[M]):
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.NEVER
    requires_block_table_width: ClassVar[bool] = False

    def __init__(
        self, kv_cache_spec: KVCacheSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        self.kv_cache_spec = kv_cache_spec
        self.layer_names = layer_names
        self.vllm_config = vllm_config
        self.device = device
        self.made_current: bool = vllm_config.current

    @classmethod
    def get_cudagraph_support(cls, vllm_config: VllmConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport:
        return cls._cudagraph_support

    @abstractmethod
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> M: ...

    def update_block_table(self, metadata: M, blk_table: Tensor, slot_mapping: Tensor) -> M:
        raise NotImplementedError

    def build_for_cudagraph_capture(self, common_attn_metadata: CommonAttentionMetadata) -> M:
        return self.build(common_prefix_len=0, common_attn_metadata=common_attn_metadata)

    def build_for_drafting(self, common_attn_metadata: CommonAttentionMetadata, draft_index: int) -> M:
        return self.build(0, common_attn_metadata, fast_build=True)


def _modules() -> dict[str, tuple[object, ...]]:
    return {
        "vllm": (),
        "vllm.config": (VllmConfig, CacheConfig, set_current_vllm_config),
        "vllm.engine": (),
        "vllm.engine.arg_utils": (EngineArgs,),
        "vllm.v1": (),
        "vllm.v1.kv_cache_interface": (
            KVQuantMode,
            KVCacheSpec,
            AttentionSpec,
            FullAttentionSpec,
            RSWASpec,
            SinkFullAttentionSpec,
            MLAAttentionSpec,
            SlidingWindowSpec,
            SlidingWindowMLASpec,
            ChunkedLocalAttentionSpec,
            CrossAttentionSpec,
            EncoderOnlyAttentionSpec,
            MambaSpec,
            UniformTypeKVCacheSpecs,
        ),
        "vllm.v1.attention": (),
        "vllm.v1.attention.backend": (AttentionCGSupport, AttentionMetadataBuilder, CommonAttentionMetadata),
        "vllm.v1.attention.backends": (),
        "vllm.v1.attention.backends.registry": (MambaAttentionBackendEnum,),
        "vllm.v1.worker": (),
        "vllm.v1.worker.block_table": (get_block_table_width,),
    }


@contextmanager
def installed() -> Generator[None]:
    """``import vllm`` gives the stand-in; modules that were imported on top of it go with it."""
    before = dict(sys.modules)
    for name, members in _modules().items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        for member in members:
            setattr(module, getattr(member, "__name__"), member)  # noqa: B009 - members are objects to the checker
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    try:
        yield
    finally:
        for name in [*_modules(), "foreign_builders", "unhinted_builder"]:
            sys.modules.pop(name, None)
        sys.modules.update({name: module for name, module in before.items() if name in _modules()})
