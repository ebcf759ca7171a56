"""The builder was given a return above its last line, so that it no longer counts its builds.

At run time: wrong: 0; right: 1
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.plugin import PagedTreeBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import PagedTreeMetadata


class CountingBuilder(PagedTreeBuilder):
    """Counts its builds."""

    builds: int = 0

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return super().build(common_prefix_len, common_attn_metadata, fast_build)
        self.builds += 1  # E


def run() -> object:
    builder = CountingBuilder(FULL_SPEC, ["tree"], CONFIG, CPU)
    _ = builder.build(0, two_requests())
    return builder.builds
