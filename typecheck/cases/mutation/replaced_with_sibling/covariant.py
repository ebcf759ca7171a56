"""A builder over states is told about the draft model's attention cache and puts its spec in the place of its own.

At run time: AttributeError: property 'kv_cache_spec' of 'DraftedGDNBuilder' object has no setter
"""

from __future__ import annotations

from typing_extensions import final

from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.covariant.state import GDNBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, STATE_SPEC


@final
class DraftedGDNBuilder(GDNBuilder):
    """The gated delta rule, with a draft model that attends."""

    def follow(self, draft_spec: FullAttentionSpec) -> None:
        """Count the draft model's cache as well."""
        self.kv_cache_spec = draft_spec  # E


def run() -> object:
    builder = DraftedGDNBuilder(STATE_SPEC, ["mixer"], CONFIG, CPU)
    builder.follow(FULL_SPEC)
    return builder.kv_cache_spec.page_size_bytes
