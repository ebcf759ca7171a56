"""A check for one very back end is declared with TypeIs: a second one of the same types then passes for the other
kind.

At run time: AttributeError: 'Mamba2Metadata' object has no attribute 'num_speculative_tokens'
"""

from __future__ import annotations

from typing_extensions import TypeIs, override

from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import Mamba2Impl
from typecheck.designs.widened.core import AttentionBackend
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.state import GDNBuilder, Mamba2Builder


class TunedMamba2Builder(Mamba2Builder):
    """Mamba2 with blocks of its own choice."""


def is_mamba2(builder: Mamba2Builder | GDNBuilder) -> TypeIs[Mamba2Builder]:  # E
    return type(builder) is Mamba2Builder


def draft_tokens(builder: Mamba2Builder | GDNBuilder) -> int:
    if is_mamba2(builder):
        return 0
    return builder.build(0, two_requests()).num_speculative_tokens


class TunedBackend(AttentionBackend):
    """The back end that configurations call "tuned"."""

    @staticmethod
    @override
    def get_name() -> str:
        return "tuned"

    @staticmethod
    @override
    def get_builder_cls() -> type[TunedMamba2Builder]:
        return TunedMamba2Builder

    @staticmethod
    @override
    def get_impl_cls() -> type[Mamba2Impl]:
        return Mamba2Impl


def run() -> object:
    builder = place(TunedBackend, STATE_SPEC).builder
    assert isinstance(builder, Mamba2Builder)
    return draft_tokens(builder)
