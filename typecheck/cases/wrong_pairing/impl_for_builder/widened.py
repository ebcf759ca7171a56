"""The implementation stands in the builder's place as well.

At run time: TypeError: AttentionImpl.__init__() takes 2 positional arguments but 5 were given
"""

from __future__ import annotations

from typing_extensions import override

from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import GDNImpl
from typecheck.designs.widened.core import AnyBuilder, AttentionBackend
from typecheck.designs.widened.layers import place


class DeltaBackend(AttentionBackend):
    """The gated delta rule."""

    @staticmethod
    @override
    def get_name() -> str:
        return "delta"

    @staticmethod
    @override
    def get_builder_cls() -> type[AnyBuilder]:
        return GDNImpl  # E

    @staticmethod
    @override
    def get_impl_cls() -> type[GDNImpl]:
        return GDNImpl


def run() -> object:
    return place(DeltaBackend, STATE_SPEC).build(two_requests())
