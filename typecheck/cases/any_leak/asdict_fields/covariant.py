"""The runner turns a latent layer's spec into a full one by copying its fields, and a full one does not have all of
them.

At run time: TypeError: FullAttentionSpec.__init__() got an unexpected keyword argument 'cache_dtype_str'
"""

from __future__ import annotations

from dataclasses import asdict

from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.covariant.attention import FULL
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, MLA_SPEC


def run() -> object:
    spec = FullAttentionSpec(**asdict(MLA_SPEC))  # E
    return FULL.bind(spec, [FULL.layer("attn", HEADS)], CONFIG, CPU)
