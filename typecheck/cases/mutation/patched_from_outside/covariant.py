"""The runner cuts the attention spec into the kernel's blocks, and writes it into the builder of a group over states.

At run time: AttributeError: property 'kv_cache_spec' of 'LinearBuilder' object has no setter
"""

from __future__ import annotations

from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.state import LINEAR
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC


def run() -> object:
    kernel_spec = FULL_SPEC.copy_with_new_block_size(2)
    group, _ = place(LINEAR, STATE_SPEC)
    group.builder.kv_cache_spec = kernel_spec  # E
    return group.builder.kv_cache_spec.page_size_bytes
