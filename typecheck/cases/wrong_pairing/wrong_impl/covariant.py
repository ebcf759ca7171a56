"""The back end's author pairs the latent builder with full attention's kernel.

At run time: TypeError: adapter 'dense_mla'
"""

from __future__ import annotations

from typecheck.designs.covariant.attention import MLABuilder
from typecheck.designs.covariant.core import BackendAdapter, Step
from typecheck.designs.covariant.layers import Attention, place
from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl


def run() -> object:
    dense = BackendAdapter("dense_mla", MLABuilder, FullImpl)  # E
    group, layer = place(dense, MLA_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
