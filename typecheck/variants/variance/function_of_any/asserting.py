"""One function takes builders of any metadata and spec types, and calls two of their methods.

Right: it hands a builder only what that builder made, and says so with type variables.
"""

from __future__ import annotations

import torch
from typing_extensions import TypeVar

from typecheck.designs.asserting.attention import FullBuilder
from typecheck.designs.asserting.core import AttentionMetadataBuilder
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import Mamba2Backend, Mamba2Builder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, STATE_SPEC, two_requests

M = TypeVar("M")


def rebuilt(builder: AttentionMetadataBuilder[M]) -> M:
    common = two_requests()
    return builder.update_block_table(builder.build(0, common), torch.tensor([[7], [8]]), common.slot_mapping)


def run() -> object:
    full = rebuilt(FullBuilder(FULL_SPEC, ["attn"], CONFIG, CPU))
    builder = place(Mamba2Backend, STATE_SPEC).builder
    assert isinstance(builder, Mamba2Builder)
    return full.block_table.sum().item(), full.num_kv_heads, rebuilt(builder).num_states
