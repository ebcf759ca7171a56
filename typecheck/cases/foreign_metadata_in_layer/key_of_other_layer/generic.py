"""A layer of full attention looks its metadata up under a latent layer's key.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from torch import Tensor

from typecheck.designs.generic.attention import FULL, MLA
from typecheck.designs.generic.core import AttentionLayer, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, MLA_SPEC, kv_cache, query, two_requests
from typecheck.designs.shared.metadata import FullMetadata, MLAMetadata


def attend(full: AttentionLayer[FullMetadata], mla: AttentionLayer[MLAMetadata], step: Step) -> Tensor:
    _ = Attention(full).forward(step)
    ones = query()
    return full.impl.forward(ones, ones, ones, kv_cache(), step[mla])  # E


def run() -> object:
    full, full_layer = place(FULL, FULL_SPEC)
    mla, mla_layer = place(MLA, MLA_SPEC)
    return attend(full_layer, mla_layer, Runner([full, mla]).build(two_requests())).sum().item()
