"""vLLM's builder around a bound group of this library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from typing_extensions import override
from vllm.v1.attention.backend import AttentionMetadataBuilder

from genericbuilders.adapter import BindError, Group, Layer, Step
from genericbuilders.kernels.select import select_kernels
from genericbuilders.specs import AttentionSpec
from genericbuilders_vllm.batch import from_vllm_batch
from genericbuilders_vllm.inside.convert import convert_config
from genericbuilders_vllm.inside.impl import ErasedImpl
from genericbuilders_vllm.inside.metadata import InsideMetadata
from genericbuilders_vllm.specs import from_vllm_spec

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.kv_cache_interface import KVCacheSpec

__all__ = ["InsideBuilder"]


class InsideBuilder(AttentionMetadataBuilder[InsideMetadata]):
    """Binds vLLM's layers to the adapter that made them, and has the group's builder build.

    One class serves every back end: which it is, the layers say.

    Attributes:
        group: the bound group.

    Raises:
        BindError: a layer is not one of this library's, the adapter does not take the spec, or it stores something
            else in a block than vLLM's cache has room for.
        ValueError: the back end does not compute what the spec asks for, or this library has no such spec.
    """

    def __init__(
        self, kv_cache_spec: KVCacheSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        # What is ignored decides where vLLM puts blocks, not what is in them.
        spec = from_vllm_spec(kv_cache_spec, ignore=("max_tp_shards", "block_stride_alignment"))
        if not isinstance(spec, AttentionSpec):
            raise BindError(
                f"layers {layer_names} have a {type(spec).__name__}; attention layers have an AttentionSpec"
            )
        layers = _open(vllm_config, layer_names)
        config = convert_config(vllm_config, spec.block_size, {layer.name: layer.config for layer in layers})
        self.group: Group = layers[0].adapter.bind_any(spec, layers, config, device)
        given = (1, 2, spec.num_kv_heads, spec.block_size, spec.head_size)
        if self.group.kv_cache_shape(1) != given:
            raise BindError(
                f"adapter {self.group.adapter.name!r} stores blocks of shape {self.group.kv_cache_shape(1)[1:]}; "
                f"vLLM's cache is given as {given[1:]}"
            )
        # Compiled now where that has to be, not within the first request.
        select_kernels(device, spec.dtype)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> InsideMetadata:
        """The batch's metadata for the group's layers.

        Raises:
            ValueError: the batch cannot be converted.
        """
        step = Step()
        self.group.build(from_vllm_batch(common_attn_metadata), step, common_prefix_len)
        return InsideMetadata(common_attn_metadata.num_actual_tokens, step)


def _open(vllm_config: VllmConfig, names: Sequence[str]) -> list[Layer]:
    """This library's layers for vLLM's layers ``names``."""
    known = vllm_config.compilation_config.static_forward_context
    layers: list[Layer] = []
    for name in names:
        impl: object = getattr(known.get(name), "impl", None)
        if not isinstance(impl, ErasedImpl):
            raise BindError(
                f"layer {name!r} of vLLM is run by {type(impl).__name__}, no back end of genericbuilders; one builder "
                "serves layers of one back end"
            )
        layers.append(impl.open(name))
    return layers
