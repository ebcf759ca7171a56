"""vLLM's base of all builders, with the spec as a second type parameter: what migrated builders derive from.

It is a builder of vLLM's, so that vLLM runs what derives from it as before. One type argument means what it means in
vLLM; the second is the spec that the builder is given, and the type of ``self.kv_cache_spec``.
"""

from __future__ import annotations

from abc import ABC
from typing import Generic

import torch
from typing_extensions import TypeVar
from vllm.config import VllmConfig
from vllm.v1.attention.backend import AttentionMetadataBuilder as VllmBuilder
from vllm.v1.kv_cache_interface import KVCacheSpec

__all__ = ["AttentionMetadataBuilder", "SpecT"]

M = TypeVar("M")
SpecT = TypeVar("SpecT", bound=KVCacheSpec, default=KVCacheSpec)


class AttentionMetadataBuilder(VllmBuilder[M], ABC, Generic[M, SpecT]):
    """Makes the metadata ``M`` from caches described by ``SpecT``, a spec of vLLM's; unless given, any."""

    # vLLM's base knows the widest spec. Whoever holds a builder as vLLM's base may only read it, which stays right.
    kv_cache_spec: SpecT

    def __init__(
        self, kv_cache_spec: SpecT, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
