"""A layer of full attention looks its metadata up under a latent layer's key.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from torch import Tensor

from typecheck.designs.shared.batch import FULL_SPEC, MLA_SPEC, kv_cache, query, two_requests
from typecheck.designs.widened.attention import FullBackend, MLABackend
from typecheck.designs.widened.core import Step
from typecheck.designs.widened.layers import Attention, place
from typecheck.designs.widened.runner import Runner


def attend(full: Attention, mla: Attention, step: Step) -> Tensor:
    _ = full.forward(step)
    ones = query()
    return full.impl.forward(ones, ones, ones, kv_cache(), step[mla.name])  # E


def run() -> object:
    full, mla = Attention("full", FullBackend), Attention("mla", MLABackend)
    step = Runner([place(FullBackend, FULL_SPEC), place(MLABackend, MLA_SPEC)]).build(two_requests())
    return attend(full, mla, step).sum().item()
