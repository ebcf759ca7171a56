"""The runner sizes all groups by a function; the function given works on Mamba2's only.

At run time: AttributeError: 'FlashInferBuilder' object has no attribute 'num_states'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from typecheck.designs.asserting.attention import FlashInferBackend
from typecheck.designs.asserting.core import AnyBuilder
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import Mamba2Backend, Mamba2Builder
from typecheck.designs.shared.batch import STATE_SPEC, UNIFORM_SPEC


def total(builders: Sequence[AnyBuilder], size: Callable[[AnyBuilder], int]) -> int:
    return sum(size(builder) for builder in builders)


def num_states(builder: Mamba2Builder) -> int:
    return builder.num_states()


def run() -> object:
    groups = [place(Mamba2Backend, STATE_SPEC), place(FlashInferBackend, UNIFORM_SPEC)]
    return total([group.builder for group in groups], num_states)  # E
