"""The back end's author pairs the latent builder with full attention's kernel.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import override

from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.widened.attention import MLABuilder
from typecheck.designs.widened.core import AttentionBackend
from typecheck.designs.widened.layers import Attention, place


class DenseMLABackend(AttentionBackend):
    """Latent attention by a dense kernel."""

    @staticmethod
    @override
    def get_name() -> str:
        return "dense_mla"

    @staticmethod
    @override
    def get_builder_cls() -> type[MLABuilder]:
        return MLABuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:  # E
        return FullImpl  # E?


def run() -> object:
    step = place(DenseMLABackend, MLA_SPEC).build(two_requests())
    return Attention("dense_mla", DenseMLABackend).forward(step).sum().item()
