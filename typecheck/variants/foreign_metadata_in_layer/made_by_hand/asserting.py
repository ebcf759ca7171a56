"""A profiling run hands a latent layer metadata that no builder made.

Right: it is of the type that the layer's kernel reads.
"""

from __future__ import annotations

import torch

from typecheck.designs.asserting.attention import MLABackend
from typecheck.designs.asserting.core import Step
from typecheck.designs.asserting.layers import Attention
from typecheck.designs.shared.metadata import MLAMetadata


def run() -> object:
    dummy: Step = {"mla": MLAMetadata(torch.zeros(1, 1), latent_size=3)}
    return Attention("mla", MLABackend).forward(dummy).sum().item()
