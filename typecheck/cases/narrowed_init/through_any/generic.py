"""The runner keeps all builders in one mapping, whose type leaves the spec open, and takes one by the wrong name.

At run time: AttributeError: 'MambaSpec' object has no attribute 'head_size'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from typecheck.designs.generic.attention import FullBuilder, MLABuilder
from typecheck.designs.generic.core import AttentionMetadataBuilder
from typecheck.designs.generic.state import LinearBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests

AnyBuilder: TypeAlias = AttentionMetadataBuilder[Any, Any]  # pyright: ignore[reportExplicitAny]  of any back end


BUILDERS: Final[Mapping[str, type[AnyBuilder]]] = {"full": FullBuilder, "mla": MLABuilder, "linear": LinearBuilder}


def run() -> object:
    builder = BUILDERS["mla"](STATE_SPEC, ["layers.0.attn"], CONFIG, CPU)  # E
    metadata: object = builder.build(0, two_requests())  # pyright: ignore[reportAny]  whatever it makes
    return metadata
