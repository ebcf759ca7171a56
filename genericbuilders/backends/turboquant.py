"""Full attention over a cache quantised after a random rotation (TurboQuant, Zandieh et al. 2025).

A turned vector's coordinates look like draws from a normal whatever the vector was, so that one quantiser, the best one
for a normal, serves all of them, and nothing is learned from data. The correction of inner products by the signs of a
projected residual, which that paper adds, is left out.
"""

from __future__ import annotations

from collections.abc import Collection

from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.quantised_base import QuantisedBuilder, QuantisedImpl, QuantisedModes
from genericbuilders.specs import KVQuantMode

__all__ = ["TURBOQUANT", "TurboQuantBuilder", "TurboQuantImpl", "TurboQuantModes"]

MODES = (
    KVQuantMode.TURBOQUANT_K8V4,
    KVQuantMode.TURBOQUANT_4BIT_NC,
    KVQuantMode.TURBOQUANT_K3V4_NC,
    KVQuantMode.TURBOQUANT_3BIT_NC,
    KVQuantMode.TURBOQUANT_2BIT_NC,
)


class TurboQuantModes(QuantisedModes):
    """Values, and but for ``TURBOQUANT_K8V4`` keys, in 2 to 4 bits an element."""

    @classmethod
    @override
    def modes(cls) -> Collection[KVQuantMode]:
        return MODES


class TurboQuantBuilder(TurboQuantModes, QuantisedBuilder):
    """The builder."""


class TurboQuantImpl(TurboQuantModes, QuantisedImpl):
    """The implementation."""


TURBOQUANT = BackendAdapter("turboquant", TurboQuantBuilder, TurboQuantImpl)
