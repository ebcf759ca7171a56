"""The runner cuts the attention spec into the kernel's blocks, and writes it into the builder of a group over states.

At run time: wrong: 256; right: 40
"""

from __future__ import annotations

from typecheck.designs.generic.layers import place
from typecheck.designs.generic.state import LINEAR
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC


def run() -> object:
    kernel_spec = FULL_SPEC.copy_with_new_block_size(2)
    group, _ = place(LINEAR, STATE_SPEC)
    group.builder.kv_cache_spec = kernel_spec  # E
    return group.builder.kv_cache_spec.page_size_bytes
