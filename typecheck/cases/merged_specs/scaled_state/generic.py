"""So that all layers share one pool, the runner scales the block size of the layers with smaller pages; a state's page
does not grow with it.

At run time: wrong: [640, 40]; right: [640, 640]
"""

from __future__ import annotations

import torch

from genericbuilders.specs import FullAttentionSpec, KVCacheSpec
from typecheck.designs.generic.plugin import PAGED_TREE
from typecheck.designs.generic.state import LINEAR
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, STATE_SPEC


def with_pages_of(spec: KVCacheSpec, page_size_bytes: int) -> KVCacheSpec:
    return spec.copy_with_new_block_size(spec.block_size * page_size_bytes // spec.page_size_bytes)  # E


def run() -> object:
    attention = FullAttentionSpec(block_size=4, num_kv_heads=5, head_size=4, dtype=torch.float32)
    groups = [
        PAGED_TREE.bind(attention, [PAGED_TREE.layer("attn", HEADS)], CONFIG, CPU),
        LINEAR.bind_any(with_pages_of(STATE_SPEC, 640), [LINEAR.layer("mixer", HEADS)], CONFIG, CPU),
    ]
    return [group.kv_cache_spec.page_size_bytes for group in groups]
