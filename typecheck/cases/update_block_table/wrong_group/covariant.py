"""Of two groups with the same blocks the runner builds one and moves its metadata to the other, of another back end.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'seq_lens'
"""

from __future__ import annotations

import torch
from typing_extensions import TypeVar

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.attention import FULL, MLA
from typecheck.designs.covariant.core import BoundGroup, Step
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, MLA_SPEC, two_requests

M = TypeVar("M")
N = TypeVar("N")
S = TypeVar("S", bound=KVCacheSpec)
R = TypeVar("R", bound=KVCacheSpec)


def shared(first: BoundGroup[M, S], second: BoundGroup[N, R], step: Step) -> N:
    metadata = first.metadata(step)
    return second.update_block_table(metadata, torch.tensor([[7]]), torch.zeros(4))  # E


def run() -> object:
    mla, _ = place(MLA, MLA_SPEC)
    full, _ = place(FULL, FULL_SPEC)
    return shared(mla, full, Runner([mla]).build(two_requests())).block_table
