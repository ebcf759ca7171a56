"""The builder asks for the base class of specs first, so that its branch for latent vectors never runs.

At run time: wrong: 2; right: 3
"""

from __future__ import annotations

from genericbuilders.specs import AttentionSpec, MLAAttentionSpec
from typecheck.designs.asserting.attention import FullBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC


class PackedBuilder(FullBuilder):
    """Full attention over packed pages."""

    def slots(self) -> int:
        """Slots in a page: two a head for keys and values; a latent vector has two more for its rotary part."""
        slots = self.kv_cache_spec.num_kv_heads
        if isinstance(self.kv_cache_spec, AttentionSpec):  # E
            slots *= 2  # E?
        elif isinstance(self.kv_cache_spec, MLAAttentionSpec):  # E?
            slots += 2  # E?
        return slots


def run() -> object:
    return PackedBuilder(MLA_SPEC, ["mla"], CONFIG, CPU).slots()
