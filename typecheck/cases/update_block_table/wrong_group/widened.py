"""Of two groups with the same blocks the runner builds one and moves its metadata to the other, of another back end.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'seq_lens'
"""

from __future__ import annotations

import torch

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, MLA_SPEC, two_requests
from typecheck.designs.widened.attention import FullBackend, MLABackend
from typecheck.designs.widened.core import AttentionGroup, Step


def shared(first: AttentionGroup, second: AttentionGroup, step: Step) -> object:
    table = torch.tensor([[7]])
    metadata = step[first.layer_names[0]]
    moved: object = second.builder.update_block_table(metadata, table, torch.zeros(4))  # pyright: ignore[reportAny]  # E
    return moved


def run() -> object:
    mla = AttentionGroup(MLABackend, MLA_SPEC, ["mla"], CONFIG, CPU)
    full = AttentionGroup(FullBackend, FULL_SPEC, ["full"], CONFIG, CPU)
    return shared(mla, full, mla.build(two_requests()))
