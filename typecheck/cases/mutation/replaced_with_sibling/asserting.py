"""A builder over states is told about the draft model's attention cache and puts its spec in the place of its own.

At run time: wrong: 512; right: 40
"""

from __future__ import annotations

from typing_extensions import final, override

from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.state import GDNBackend, GDNBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, STATE_SPEC


@final
class DraftedGDNBuilder(GDNBuilder):
    """The gated delta rule, with a draft model that attends."""

    def follow(self, draft_spec: FullAttentionSpec) -> None:
        """Count the draft model's cache as well."""
        self.kv_cache_spec = draft_spec  # E


class DraftedGDNBackend(GDNBackend):
    """The gated delta rule, with a draft model."""

    @staticmethod
    @override
    def get_builder_cls() -> type[DraftedGDNBuilder]:
        return DraftedGDNBuilder


def run() -> object:
    builder = AttentionGroup(DraftedGDNBackend, STATE_SPEC, ["mixer"], CONFIG, CPU).builder
    assert isinstance(builder, DraftedGDNBuilder)
    builder.follow(FULL_SPEC)
    return builder.kv_cache_spec.page_size_bytes
