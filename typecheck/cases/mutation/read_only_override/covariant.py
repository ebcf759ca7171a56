"""A plug-in makes its builder's spec anew for larger blocks, and makes one of the parent class: values are counted as
if they were stored.

At run time: AttributeError: property 'kv_cache_spec' of 'LargeBlockMLABuilder' object has no setter
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import final

from genericbuilders.config import EngineConfig
from genericbuilders.specs import FullAttentionSpec, MLAAttentionSpec
from typecheck.designs.covariant.attention import MLABuilder
from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC


@final
class LargeBlockMLABuilder(MLABuilder):
    """Latent attention by a kernel that reads blocks of 8 tokens."""

    def __init__(
        self, kv_cache_spec: MLAAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        head_size, dtype = kv_cache_spec.head_size, kv_cache_spec.dtype
        self.kv_cache_spec = FullAttentionSpec(block_size=8, num_kv_heads=1, head_size=head_size, dtype=dtype)  # E


def run() -> object:
    return LargeBlockMLABuilder(MLA_SPEC, ["attn"], CONFIG, CPU).kv_cache_spec.page_size_bytes
