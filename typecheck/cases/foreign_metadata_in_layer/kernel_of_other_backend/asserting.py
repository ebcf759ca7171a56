"""A latent layer runs its prefills on FlashInfer's kernel, and hands it the metadata of its own back end.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.asserting.attention import FlashInferBackend, MLABackend
from typecheck.designs.asserting.core import Step
from typecheck.designs.asserting.layers import Module, place
from typecheck.designs.asserting.runner import Runner
from typecheck.designs.shared.batch import HEADS, MLA_SPEC, kv_cache, query, two_requests
from typecheck.designs.shared.kernels import FlashInferImpl
from typecheck.designs.shared.metadata import MLAMetadata


class LatentAttention(Module):
    """Latent attention with another kernel for prefills."""

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.prefill: FlashInferImpl = FlashInferBackend.get_impl_cls()(HEADS)

    @override
    def forward(self, step: Step) -> Tensor:
        metadata = step[self.name]
        assert isinstance(metadata, MLAMetadata)
        ones = query()
        return self.prefill.forward(ones, ones, ones, kv_cache(), metadata)  # E


def run() -> object:
    step = Runner([place(MLABackend, MLA_SPEC)]).build(two_requests())
    return LatentAttention("mla").forward(step).sum().item()
