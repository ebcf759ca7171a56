"""Attention over an encoder's output: its keys and values are stored once, at a request's first step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.paged import CachedImpl, PlainCacheBuilder, is_ordered, packings
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import EngineConfig, check_heads, check_reach
from genericbuilders.kernels.ints import largest
from genericbuilders.metadata import BuildInput, CommonAttentionMetadata
from genericbuilders.specs import CrossAttentionSpec, cdiv

__all__ = [
    "CROSS",
    "ENCODER_ROWS",
    "CrossAttentionImpl",
    "CrossAttentionMetadata",
    "CrossAttentionMetadataBuilder",
    "EncoderRows",
]


@dataclass(frozen=True)
class EncoderRows:
    """What the rows of a batch have an encoder's output of.

    Attributes:
        lens: ``[num_reqs]`` int32 or longer (a padded buffer), on the device: tokens of each row's encoder output.
        lens_cpu: the same on the host.
        starts_cpu: ``[num_reqs]`` bool or longer, on the host: rows whose encoder output comes with this batch, and is
            to be stored.
    """

    lens: Tensor
    lens_cpu: Tensor
    starts_cpu: Tensor


ENCODER_ROWS: BuildInput[EncoderRows] = BuildInput("encoder_rows")
"""What the rows of a batch have an encoder's output of."""


@dataclass
class CrossAttentionMetadata:
    """One batch over its requests' encoder outputs.

    Attributes:
        num_actual_tokens: new tokens of the requests, padding not counted.
        max_query_len: the longest row's new tokens.
        query_start_loc: ``[num_reqs + 1]`` int32.
        max_encoder_len: the longest row's encoder output.
        encoder_lens: ``[num_reqs]`` int32: tokens of each row's encoder output, whatever the request's own length.
        block_table: ``[num_reqs, max_blocks]`` int32.
        slot_mapping: ``[num_encoder_tokens]`` int64: where the keys and values of the rows that start are stored.
    """

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: Tensor
    max_encoder_len: int
    encoder_lens: Tensor
    block_table: Tensor
    slot_mapping: Tensor


class CrossAttentionMetadataBuilder(PlainCacheBuilder[CrossAttentionMetadata, CrossAttentionSpec]):
    """Reads the encoder's lengths from `ENCODER_ROWS`; the batch's slots are those of encoder tokens.

    Raises:
        ValueError: the spec asks for what this back end does not compute, a layer's heads are not those of the spec, or
            a layer is causal or looks at positions.
    """

    def __init__(
        self, kv_cache_spec: CrossAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        if odd := packings(kv_cache_spec):
            raise ValueError(
                f"layers {list(layer_names)} have {', '.join(odd)}: {kv_cache_spec!r}; cross serves plain keys and "
                "values"
            )
        check_heads(config, layer_names, kv_cache_spec.num_kv_heads, kv_cache_spec.head_size)
        check_reach(config, layer_names, None, None)
        ordered = [name for name in layer_names if is_ordered(config, name)]
        if ordered:
            raise ValueError(
                f"layers {ordered} are causal or have ALiBi slopes, but an encoder's tokens are not in order with a "
                "request's own; set causal=False and alibi_slopes=None"
            )

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: CrossAttentionSpec) -> AttentionCGSupport:
        """None: a row of one token that starts a request looks like a decode, but has an encoder's output to store."""
        return AttentionCGSupport.NEVER

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> CrossAttentionMetadata:
        """The metadata of one batch.

        Raises:
            ValueError: a row has tokens but no encoder output, the block table has too few columns for one, or there
                are not as many slots as encoder tokens to store.
        """
        common, rows = common_attn_metadata, common_attn_metadata.inputs[ENCODER_ROWS]
        num_reqs = common.num_reqs
        if rows.lens.shape[0] < num_reqs or rows.lens_cpu.shape[0] < num_reqs or rows.starts_cpu.shape[0] < num_reqs:
            raise ValueError(
                f"there are {num_reqs} requests, but {ENCODER_ROWS.name} has {len(rows.lens)} lens, "
                f"{len(rows.lens_cpu)} lens_cpu and {len(rows.starts_cpu)} starts_cpu; it needs one of each a request"
            )
        lens, bounds = rows.lens_cpu.numpy()[:num_reqs], common.query_start_loc_cpu.numpy()
        new_tokens = bounds[1 : num_reqs + 1] - bounds[:num_reqs]
        encoder_lens = rows.lens if rows.lens.shape[0] == num_reqs else rows.lens[:num_reqs]
        # Rows without tokens are padding, whatever stands in the buffers there.
        if np.count_nonzero(new_tokens) < num_reqs:
            lens = np.where(new_tokens > 0, lens, 0)
            encoder_lens = encoder_lens.where(common.query_start_loc[: num_reqs + 1].diff() > 0, 0)
        if np.count_nonzero(lens < 1) and np.count_nonzero(bare := (lens < 1) & (new_tokens > 0)):
            row = int(bare.argmax())
            raise ValueError(
                f"row {row} has {new_tokens[row]} new tokens and an encoder output of {lens[row]}; it must have "
                "something to attend over"
            )
        longest = largest(lens)
        columns, needed = common.block_table_tensor.shape[1], cdiv(longest, self.kv_cache_spec.block_size)
        if columns < needed:
            raise ValueError(
                f"row {int(lens.argmax())} has an encoder output of {longest} tokens, which takes {needed} blocks of "
                f"{self.kv_cache_spec.block_size}; the block table has {columns} columns"
            )
        starting, slots = rows.starts_cpu.numpy()[:num_reqs], common.slot_mapping.shape[0]
        stored = int(lens @ starting) if np.count_nonzero(starting) else 0
        if slots != stored:
            raise ValueError(
                f"the rows that start have {stored} encoder tokens to store, but there are {slots} "
                "slots; slots of this group stand for encoder tokens"
            )
        return CrossAttentionMetadata(
            common.num_actual_tokens,
            common.max_query_len,
            common.query_start_loc,
            longest,
            encoder_lens,
            common.block_table_tensor,
            common.slot_mapping,
        )

    @override
    def update_block_table(
        self, metadata: CrossAttentionMetadata, blk_table: Tensor, slot_mapping: Tensor
    ) -> CrossAttentionMetadata:
        return replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)


class CrossAttentionImpl(CachedImpl[CrossAttentionMetadata]):
    """Stores what the encoder gave for the rows that start, then lets every new token attend over its row's."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: CrossAttentionMetadata
    ) -> Tensor:
        """Store and attend.

        Args:
            query: ``[num_tokens, num_heads, head_size]``, of the requests' own tokens.
            key: ``[num_encoder_tokens, num_kv_heads, head_size]``, of the rows that start; none if no row does.
            value: likewise.
            kv_cache: the layer's cache.
            attn_metadata: this batch's metadata.

        Returns:
            ``[num_tokens, num_heads, head_size]``; rows behind the batch's tokens are zero.

        Raises:
            ValueError: there are not as many keys as slots.
        """
        kernels, key_cache, value_cache = self.open(kv_cache)
        if len(key) != len(attn_metadata.slot_mapping):
            raise ValueError(
                f"there are keys of {len(key)} encoder tokens, and slots for {len(attn_metadata.slot_mapping)}; give "
                "those of the rows that start with this batch, and no others"
            )
        if len(key):
            kernels.write_kv_cache(key, value, key_cache, value_cache, attn_metadata.slot_mapping)
        return kernels.paged_attention(
            query,
            key_cache,
            value_cache,
            query_start_loc=attn_metadata.query_start_loc,
            seq_lens=attn_metadata.encoder_lens,
            block_table=attn_metadata.block_table,
            scale=self.layer.scale,
            causal=False,
            max_query_len=attn_metadata.max_query_len,
            max_seq_len=attn_metadata.max_encoder_len,
            scoring=self.scoring,
        )


CROSS = BackendAdapter("cross", CrossAttentionMetadataBuilder, CrossAttentionImpl, needs=(ENCODER_ROWS,))
