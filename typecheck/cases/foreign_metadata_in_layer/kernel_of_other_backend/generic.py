"""A latent layer runs its prefills on FlashInfer's kernel, and hands it the metadata of its own back end.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.generic.attention import FLASHINFER, MLA
from typecheck.designs.generic.core import AttentionImpl, AttentionLayer, Step
from typecheck.designs.generic.layers import Module, place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import HEADS, MLA_SPEC, kv_cache, query, two_requests
from typecheck.designs.shared.metadata import FlashInferMetadata, MLAMetadata


class LatentAttention(Module):
    """Latent attention with another kernel for prefills."""

    def __init__(self, layer: AttentionLayer[MLAMetadata]) -> None:
        self.layer: AttentionLayer[MLAMetadata] = layer
        self.prefill: AttentionImpl[FlashInferMetadata] = FLASHINFER.impl(HEADS)

    @override
    def forward(self, step: Step) -> Tensor:
        ones = query()
        return self.prefill.forward(ones, ones, ones, kv_cache(), step[self.layer])  # E


def run() -> object:
    group, layer = place(MLA, MLA_SPEC)
    return LatentAttention(layer).forward(Runner([group]).build(two_requests())).sum().item()
