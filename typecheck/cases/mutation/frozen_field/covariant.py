"""A kernel reads blocks of 2 tokens, so its builder sets the block size in the spec that it was given.

At run time: FrozenInstanceError: cannot assign to field 'block_size'
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec
from typecheck.designs.covariant.attention import FullBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests


class SmallBlockBuilder(FullBuilder):
    """Full attention by a kernel that reads blocks of 2 tokens."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.kv_cache_spec.block_size = 2  # E


def run() -> object:
    return SmallBlockBuilder(FULL_SPEC, ["attn"], CONFIG, CPU).build(0, two_requests())
