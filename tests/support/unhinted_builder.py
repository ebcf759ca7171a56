"""A builder without base and without a hint. Import it where vLLM, or its stand-in, is there."""

# mypy: allow-untyped-defs
# pyright: basic
# ruff: noqa: ANN001, ANN201, ANN204

from __future__ import annotations

from foreign_builders import DenseMetadata


class BareBuilder:
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        self.spec = kv_cache_spec

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        return DenseMetadata(common_attn_metadata.block_table_tensor, 3)
