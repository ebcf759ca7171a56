"""A planning builder hands its spec to a helper that was written for one attention spec, and forgets that it may be a
wrapper of several.

At run time: AttributeError: 'UniformTypeKVCacheSpecs' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.attention import FlashInferBackend, FlashInferBuilder
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.shared.batch import CONFIG, CPU, UNIFORM_SPEC, two_requests


def workspace_bytes(spec: AttentionSpec) -> int:
    return 4 * spec.num_kv_heads * spec.head_size


class SizedBuilder(FlashInferBuilder):
    """Sets a workspace aside when it is made."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.workspace: Tensor = torch.empty(workspace_bytes(kv_cache_spec), dtype=torch.int8, device=device)  # E


class SizedBackend(FlashInferBackend):
    """Attention from a plan, with a workspace."""

    @staticmethod
    @override
    def get_builder_cls() -> type[SizedBuilder]:
        return SizedBuilder


def run() -> object:
    group = AttentionGroup(SizedBackend, UNIFORM_SPEC, ["wide", "narrow"], CONFIG, CPU)
    return group.build(two_requests())
