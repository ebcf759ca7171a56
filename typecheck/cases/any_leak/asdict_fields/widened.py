"""The runner turns a latent layer's spec into a full one by copying its fields, and a full one does not have all of
them.

At run time: TypeError: FullAttentionSpec.__init__() got an unexpected keyword argument 'cache_dtype_str'
"""

from __future__ import annotations

from dataclasses import asdict

from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC, two_requests
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.core import AttentionGroup


def run() -> object:
    spec = FullAttentionSpec(**asdict(MLA_SPEC))  # E
    return AttentionGroup(FullBackend, spec, ["attn"], CONFIG, CPU).build(two_requests())
