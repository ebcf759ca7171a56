"""A profiling run hands a latent layer metadata that no builder made.

Right: it is of the type that the layer's kernel reads.
"""

from __future__ import annotations

import torch

from typecheck.designs.generic.attention import MLA
from typecheck.designs.generic.core import Step
from typecheck.designs.generic.layers import Attention
from typecheck.designs.shared.batch import HEADS
from typecheck.designs.shared.metadata import MLAMetadata


def run() -> object:
    layer = MLA.layer("mla", HEADS)
    dummy = Step()
    dummy.put(layer, MLAMetadata(torch.zeros(1, 1), latent_size=3))
    return Attention(layer).forward(dummy).sum().item()
