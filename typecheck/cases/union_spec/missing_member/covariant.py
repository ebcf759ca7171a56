"""A planning builder hands its spec to a helper that was written for one attention spec, and forgets that it may be a
wrapper of several.

At run time: AttributeError: 'UniformTypeKVCacheSpecs' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec, UniformTypeKVCacheSpecs
from typecheck.designs.covariant.attention import FlashInferBuilder
from typecheck.designs.covariant.core import BackendAdapter
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, UNIFORM_SPEC
from typecheck.designs.shared.kernels import FlashInferImpl


def workspace_bytes(spec: AttentionSpec) -> int:
    return 4 * spec.num_kv_heads * spec.head_size


class SizedBuilder(FlashInferBuilder):
    """Sets a workspace aside when it is made."""

    def __init__(
        self,
        kv_cache_spec: AttentionSpec | UniformTypeKVCacheSpecs,
        layer_names: Sequence[str],
        config: EngineConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.workspace: Tensor = torch.empty(workspace_bytes(kv_cache_spec), dtype=torch.int8, device=device)  # E


SIZED: Final = BackendAdapter("sized", SizedBuilder, FlashInferImpl)


def run() -> object:
    layers = [SIZED.layer(name, HEADS) for name in ("wide", "narrow")]
    return SIZED.bind(UNIFORM_SPEC, layers, CONFIG, CPU)
