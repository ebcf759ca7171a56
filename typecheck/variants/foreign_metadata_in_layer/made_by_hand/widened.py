"""A profiling run hands a latent layer metadata that no builder made.

Right: it is of the type that the layer's kernel reads.
"""

from __future__ import annotations

import torch

from typecheck.designs.shared.metadata import MLAMetadata
from typecheck.designs.widened.attention import MLABackend
from typecheck.designs.widened.core import Step
from typecheck.designs.widened.layers import Attention


def run() -> object:
    dummy: Step = {"mla": MLAMetadata(torch.zeros(1, 1), latent_size=3)}
    return Attention("mla", MLABackend).forward(dummy).sum().item()
