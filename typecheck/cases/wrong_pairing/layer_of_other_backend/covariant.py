"""The model's code makes a layer for one back end and puts it into another's group.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typecheck.designs.covariant.attention import FULL, MLA
from typecheck.designs.covariant.core import Step
from typecheck.designs.covariant.layers import Attention
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, MLA_SPEC, two_requests


def run() -> object:
    layer = FULL.layer("layers.0.attn", HEADS)
    group = MLA.bind(MLA_SPEC, [layer], CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
