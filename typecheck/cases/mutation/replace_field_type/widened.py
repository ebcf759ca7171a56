"""An attention builder derives a padded spec with `dataclasses.replace`, and gives a field of it a number as text.

At run time: TypeError: '<' not supported between instances of 'str' and 'int'
"""

from __future__ import annotations

from dataclasses import replace

from genericbuilders.specs import AttentionSpec
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC
from typecheck.designs.widened.attention import FullBuilder


class PaddedBuilder(FullBuilder):
    """Full attention over pages of a size that the user chooses."""

    def padded_spec(self, page_size: str) -> AttentionSpec:
        """What the layers' caches hold, in pages of that size."""
        return replace(self.kv_cache_spec, page_size_padded=page_size)  # E


def run() -> object:
    return PaddedBuilder(FULL_SPEC, ["attn"], CONFIG, CPU).padded_spec("1024")
