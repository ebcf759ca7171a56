"""The model's code makes a layer for one back end and puts it into another's group.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typecheck.designs.asserting.attention import FullBackend, MLABackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.layers import Attention
from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC, two_requests


def run() -> object:
    layer = Attention("layers.0.attn", FullBackend)
    group = AttentionGroup(MLABackend, MLA_SPEC, [layer.name], CONFIG, CPU)  # E
    return layer.forward(group.build(two_requests())).sum().item()
