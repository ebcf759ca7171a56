"""The runner keeps all builders in one mapping, whose type leaves the spec open, and takes one by the wrong name.

At run time: AttributeError: 'MambaSpec' object has no attribute 'head_size'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.widened.attention import FullBuilder, MLABuilder
from typecheck.designs.widened.core import AnyBuilder
from typecheck.designs.widened.state import LinearBuilder

BUILDERS: Final[Mapping[str, type[AnyBuilder]]] = {"full": FullBuilder, "mla": MLABuilder, "linear": LinearBuilder}


def run() -> object:
    builder = BUILDERS["mla"](STATE_SPEC, ["layers.0.attn"], CONFIG, CPU)  # E
    metadata: object = builder.build(0, two_requests())  # pyright: ignore[reportAny]  whatever it makes
    return metadata
