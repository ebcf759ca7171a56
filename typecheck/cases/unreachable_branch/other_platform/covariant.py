"""On Windows the builder pads pages by an attribute that no spec has; the author's machine runs Linux.

At run time: nothing: the branch runs on Windows only
"""

from __future__ import annotations

import sys

from typecheck.designs.covariant.plugin import PagedTreeBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC


class PaddedTreeBuilder(PagedTreeBuilder):
    """A tree of padded pages."""

    def padded_page(self) -> int:
        """Bytes of one page, padded."""
        if sys.platform == "win32":
            return max(self.kv_cache_spec.page_size, 65536)  # E
        return self.kv_cache_spec.page_size_bytes


def run() -> object:
    return PaddedTreeBuilder(FULL_SPEC, ["tree"], CONFIG, CPU).padded_page()
