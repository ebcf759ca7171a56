"""The model's code makes a layer for one back end and puts it into another's group.

At run time: BindError: layer 'layers.0.attn' was made by adapter 'full', not by 'mla'
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FULL, MLA
from typecheck.designs.generic.core import Step
from typecheck.designs.generic.layers import Attention
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, MLA_SPEC, two_requests


def run() -> object:
    layer = FULL.layer("layers.0.attn", HEADS)
    group = MLA.bind(MLA_SPEC, [layer], CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
