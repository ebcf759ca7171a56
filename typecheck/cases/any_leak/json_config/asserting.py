"""A back end's options are read from a configuration file in which the block size is text.

At run time: TypeError: FullAttentionSpec: block_size is '2'; it must be an integer
"""

from __future__ import annotations

import json

from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.plugin import PagedTreeBackend
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests


def block_size_of(text: str) -> int:
    options: dict[str, int] = json.loads(text)  # E
    return options["block_size"]


def run() -> object:
    spec = FULL_SPEC.copy_with_new_block_size(block_size_of('{"block_size": "2"}'))
    return AttentionGroup(PagedTreeBackend, spec, ["attn"], CONFIG, CPU).build(two_requests())
