"""Builders as other projects write them for vLLM. Import it where vLLM, or its stand-in, is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor
from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadataBuilder, CommonAttentionMetadata

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, KVCacheSpec, MambaSpec

N = TypeVar("N")


@dataclass
class DenseMetadata:
    block_table: Tensor
    num_kv_heads: int
    fast: bool = False
    prefix: int = 0


class NarrowDenseMetadata(DenseMetadata):
    pass


@dataclass
class StateMetadata:
    first: Tensor
    prefilling: Tensor | None


class DenseBuilder(AttentionMetadataBuilder[DenseMetadata]):
    """As before PR #50148: the wide attention spec, which its spec is."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.num_kv_heads = kv_cache_spec.num_kv_heads

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> DenseMetadata:
        table = common_attn_metadata.block_table_tensor
        return DenseMetadata(table, self.num_kv_heads, fast_build, common_prefix_len)

    def update_block_table(self, metadata: DenseMetadata, blk_table: Tensor, slot_mapping: Tensor) -> DenseMetadata:
        return DenseMetadata(blk_table, metadata.num_kv_heads)


class InterBuilder(AttentionMetadataBuilder[N]):
    """A generic intermediate, annotated at class level as the PR asks for, with a wide constructor."""

    kv_cache_spec: MambaSpec

    def __init__(
        self, kv_cache_spec: KVCacheSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> N:
        raise NotImplementedError


class StateBuilder(InterBuilder[StateMetadata]):
    def __init__(
        self, kv_cache_spec: MambaSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
        *,
        num_accepted_tokens: Tensor | None = None,
        **kwargs: object,
    ) -> StateMetadata:
        first = common_attn_metadata.block_table_tensor[:, 0]
        return StateMetadata(
            first if num_accepted_tokens is None else num_accepted_tokens, common_attn_metadata.is_prefilling
        )


class InheritedBuilder(InterBuilder[StateMetadata]):
    """What it makes is said by the argument of its base alone."""


class MisHintedBuilder(AttentionMetadataBuilder[DenseMetadata]):
    """Its hint promises what does not arrive: a MambaSpec does."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.num_states = len(getattr(kv_cache_spec, "shapes", ()))

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> DenseMetadata:
        return DenseMetadata(common_attn_metadata.block_table_tensor, self.num_states)


class WidthBuilder(AttentionMetadataBuilder[DenseMetadata]):
    requires_block_table_width: ClassVar[bool] = True

    def __init__(self, *args: Any, block_table_width: int, **kwargs: Any) -> None:  # noqa: ANN401 - as vLLM writes it
        super().__init__(*args, **kwargs)
        self.block_table_width = block_table_width

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> DenseMetadata:
        return DenseMetadata(common_attn_metadata.block_table_tensor, self.block_table_width)


class UnparametrisedBuilder(AttentionMetadataBuilder):  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument] - as many write it
    def __init__(
        self, kv_cache_spec: FullAttentionSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata) -> DenseMetadata:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - an argument less
        return DenseMetadata(common_attn_metadata.block_table_tensor, 1, prefix=common_prefix_len)


class DuckBuilder:
    """No base, and graph support under another name."""

    cudagraph_support = AttentionCGSupport.ALWAYS

    def __init__(
        self,
        kv_cache_spec: FullAttentionSpec,
        layer_names: list[str],
        vllm_config: VllmConfig,
        device: torch.device,
        scale: float = 1.0,
    ) -> None:
        self.scale = scale

    def build(self, common_attn_metadata: CommonAttentionMetadata, **kwargs: object) -> DenseMetadata:
        return DenseMetadata(common_attn_metadata.block_table_tensor, int(self.scale), bool(kwargs.get("fast_build")))


class DemandingBuilder(Generic[N]):
    """Asks its build for more."""

    def __init__(
        self, kv_cache_spec: FullAttentionSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        pass

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, num_computed: Tensor
    ) -> DenseMetadata:
        return DenseMetadata(num_computed, 1)
