"""A function makes a builder class from a number and returns it.

Right: it says that it returns a full builder, and it does.
"""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.attention import FullBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata


def cut_to(tokens: int) -> type[FullBuilder]:
    class CutBuilder(FullBuilder):
        @override
        def build(
            self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
        ) -> FullMetadata:
            made = super().build(common_prefix_len, common_attn_metadata, fast_build)
            return replace(made, seq_lens=made.seq_lens.clamp(max=tokens))

    return CutBuilder


def run() -> object:
    builder = cut_to(4)(FULL_SPEC, ["attn"], CONFIG, CPU)
    return builder.build(0, two_requests()).seq_lens.sum().item()
