"""The plug-in's build collects what else it may be given by name; the runner passes fast_build by position.

At run time: TypeError: TreeBuilder.build() takes 3 positional arguments but 4 were given
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.core import AttentionMetadataBuilder, BackendAdapter, BoundGroup
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class TreeBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """A tree of pages, laid out anew."""

    @override
    def build(  # E?
        self,  # E?
        common_prefix_len: int,  # E?
        common_attn_metadata: CommonAttentionMetadata,  # E?
        **kwargs: bool,  # E
    ) -> PagedTreeMetadata:
        size = 0 if kwargs.get("fast_build", False) else self.kv_cache_spec.page_size_bytes
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, size)


TREE: Final = BackendAdapter("tree", TreeBuilder, PagedTreeImpl)


def draft(group: BoundGroup[PagedTreeMetadata], common: CommonAttentionMetadata) -> PagedTreeMetadata:
    return group.builder.build(0, common, True)


def run() -> object:
    group = TREE.bind(FULL_SPEC, [TREE.layer("tree", HEADS)], CONFIG, CPU)
    return draft(group, two_requests())
