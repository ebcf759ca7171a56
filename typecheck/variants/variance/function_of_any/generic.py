"""One function takes builders of any metadata and spec types, and calls two of their methods.

Right: it hands a builder only what that builder made, and says so with type variables.
"""

from __future__ import annotations

import torch
from typing_extensions import TypeVar

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import AttentionMetadataBuilder
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)


def rebuilt(builder: AttentionMetadataBuilder[M, S]) -> M:
    common = two_requests()
    return builder.update_block_table(builder.build(0, common), torch.tensor([[7], [8]]), common.slot_mapping)


def run() -> object:
    full = rebuilt(place(FULL, FULL_SPEC)[0].builder)
    states = rebuilt(place(MAMBA2, STATE_SPEC)[0].builder)
    return full.block_table.sum().item(), full.num_kv_heads, states.num_states
