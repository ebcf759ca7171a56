"""An attention builder derives the spec of its draft layers with `dataclasses.replace`, and sets a field that only a
spec of states has.

At run time: TypeError: FullAttentionSpec.__init__() got an unexpected keyword argument 'num_speculative_blocks'
"""

from __future__ import annotations

from dataclasses import replace

from genericbuilders.specs import AttentionSpec
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC
from typecheck.designs.widened.attention import FullBuilder


class DraftingBuilder(FullBuilder):
    """Full attention that also describes its draft layers."""

    def draft_spec(self) -> AttentionSpec:
        """What the draft layers' caches hold."""
        return replace(self.kv_cache_spec, num_speculative_blocks=self.config.num_speculative_tokens)  # E


def run() -> object:
    return DraftingBuilder(FULL_SPEC, ["attn"], CONFIG, CPU).draft_spec()
