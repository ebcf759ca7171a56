"""The author of a back end forgets to give it the name that configurations call it by.

At run time: wrong: [None]; right: ['ring']
"""

from __future__ import annotations

from typing_extensions import override

from typecheck.designs.shared.batch import FULL_SPEC
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AttentionBackend
from typecheck.designs.widened.layers import place


class RingBackend(AttentionBackend):
    """The back end around a ring."""

    @staticmethod
    @override
    def get_builder_cls() -> type[FullBuilder]:
        return FullBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


def run() -> object:
    group = place(RingBackend, FULL_SPEC)  # E
    return group.layer_names
