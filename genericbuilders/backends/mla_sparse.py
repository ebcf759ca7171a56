"""Sparse latent attention (DeepSeek-V3.2): each token attends over the latent vectors that an indexer selected for it.

Where a sequence is no longer than what is selected, everything is: there the dense paths of `mla` give the same, and
cost less. Rows are told apart one by one, so that a short prompt beside a long one stays cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import LatentAdapter
from genericbuilders.backends.host import check_lengths, send
from genericbuilders.backends.mla_attend import (
    MLAInputs,
    absorb,
    attend_decodes,
    attend_prefills,
    value_of,
    write_latents,
)
from genericbuilders.backends.mla_common import Bools, MLACommonMetadata, MLACommonMetadataBuilder
from genericbuilders.builder import LatentImpl
from genericbuilders.config import EngineConfig, LatentLayerConfig
from genericbuilders.kernels.ints import Ints, tensor_of
from genericbuilders.kernels.select import select_kernels
from genericbuilders.kernels.sparse.portable import sparse_attention
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.sparse_config import shared_topk
from genericbuilders.specs import MLAAttentionSpec

__all__ = [
    "MLA_SPARSE",
    "MLASparseImpl",
    "MLASparseInputs",
    "MLASparseMetadata",
    "MLASparseMetadataBuilder",
    "MLASparseTokens",
]


@dataclass(eq=False)
class MLASparseTokens:
    """The tokens that attend over what was selected for them.

    Attributes:
        tokens: which of the batch's: a run of them, or ``[num_tokens]`` int64.
        query_start_loc: ``[num_reqs + 1]`` int32, of all rows.
        block_table: ``[num_reqs, max_blocks]`` int32, of all rows.
        block_size: tokens in a block.
        max_seq_len: a bound on the rows' sequences, and so on what a token selects.
    """

    tokens: Tensor | slice
    query_start_loc: Tensor
    block_table: Tensor
    block_size: int
    max_seq_len: int

    @cached_property
    def rows(self) -> Tensor:
        """``[num_tokens]`` int64: the row of each token; worked out on the device, when the first layer asks."""
        tokens, ends = self.tokens, self.query_start_loc[1:]
        if isinstance(tokens, slice):
            tokens = torch.arange(tokens.start, tokens.stop, dtype=ends.dtype, device=ends.device)
        # Tokens of padding are no row's; they select nothing, whichever row they are given.
        return torch.searchsorted(ends.contiguous(), tokens.to(ends.dtype), right=True).clamp(max=len(ends) - 1)

    def slots(self, selected: Tensor) -> Tensor:
        """``[num_tokens, num_keys]`` int64: where the selected positions stand in the cache; -1 for none.

        Args:
            selected: ``[num_tokens, topk]`` int32: positions of each token's own request, ascending, then -1.

        Raises:
            ValueError: on a CPU, a position lies behind the longest sequence.
        """
        selected = selected[:, : self.max_seq_len]
        # On a device, looking would wait for it.
        if selected.device.type == "cpu" and selected.numel() and int(selected.max()) >= self.max_seq_len:
            raise ValueError(
                f"selected holds position {int(selected.max())}; the longest sequence has {self.max_seq_len} tokens"
            )
        blocks = self.block_table[self.rows[:, None], selected.clamp(min=0) // self.block_size].long()
        return torch.where(selected < 0, -1, blocks * self.block_size + selected % self.block_size)


@dataclass
class MLASparseMetadata(MLACommonMetadata):
    """One batch for sparse latent attention; ``decode`` and ``prefill`` are what attends densely.

    Attributes:
        dense: the tokens that ``prefill`` describes.
        sparse: the tokens that attend over what was selected; ``None`` without any.
    """

    dense: Tensor | slice = field(default_factory=lambda: slice(0, 0))
    sparse: MLASparseTokens | None = None


class MLASparseMetadataBuilder(MLACommonMetadataBuilder[MLASparseMetadata]):
    """Rows whose sequence is longer than ``topk`` are sparse; decodes all are as soon as one is.

    Attributes:
        topk: the most tokens that a token attends over.

    Raises:
        ValueError: as `MLACommonMetadataBuilder`; or a layer is not sparse, or layers differ in ``topk``.
    """

    def __init__(
        self, kv_cache_spec: MLAAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.topk: int = shared_topk(config, layer_names)

    @property
    @override
    def metadata_type(self) -> type[MLASparseMetadata]:
        return MLASparseMetadata

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLASparseMetadata:
        common, count = common_attn_metadata, common_attn_metadata.num_reqs
        if common.max_seq_len <= self.topk:
            return self._dense(common)
        if common.num_actual_tokens == count and common.max_query_len <= 1:
            return self._sparse(self._describe(common, False), slice(0, count))
        lens: Ints = common.seq_lens_cpu.numpy()[:count]
        if len(lens) < count:
            check_lengths(common)
        if count and lens.item(lens.argmin()) > self.topk:
            return self._sparse(self._describe(common, False), slice(0, common.num_actual_tokens))
        long = lens > self.topk
        if not np.count_nonzero(long):
            return self._dense(common)
        starts: Ints = common.query_start_loc_cpu.numpy()
        counts = starts[1:] - starts[:-1]
        # A row without tokens selects nothing, whatever stands in the buffers there.
        short = ~long | (counts == 0)
        if short.all():
            return self._dense(common)
        metadata = self._describe(common, short)
        decodes, decode = metadata.num_decodes, metadata.decode
        decodes_short = bool(short[:decodes].all())
        short[:decodes] = decodes_short
        metadata = self._sparse(metadata, self._places(~short, starts, counts))
        metadata.decode = decode if decodes_short else None
        short[:decodes] = False
        metadata.dense = self._places(short, starts, counts)
        return metadata

    @override
    def update_block_table(
        self, metadata: MLASparseMetadata, blk_table: Tensor, slot_mapping: Tensor
    ) -> MLASparseMetadata:
        moved = super().update_block_table(metadata, blk_table, slot_mapping)
        if metadata.sparse is None:
            return moved
        return replace(
            moved,
            sparse=replace(metadata.sparse, block_table=blk_table, block_size=self.kv_cache_spec.block_size),
        )

    def _dense(self, common: CommonAttentionMetadata) -> MLASparseMetadata:
        """A batch of rows that select all that they see."""
        metadata = self._describe(common)
        metadata.dense = slice(metadata.num_decode_tokens, metadata.num_actual_tokens)
        return metadata

    def _sparse(self, metadata: MLASparseMetadata, tokens: Tensor | slice) -> MLASparseMetadata:
        """The same batch with no decode dense, and with ``tokens`` sparse."""
        metadata.decode = None
        metadata.sparse = MLASparseTokens(
            tokens,
            metadata.query_start_loc,
            metadata.block_table,
            self.kv_cache_spec.block_size,
            metadata.max_seq_len,
        )
        return metadata

    def _places(self, taken: Bools, starts: Ints, counts: Ints) -> Tensor | slice:
        """The tokens of the rows that are ``taken``."""
        lens = counts * taken
        rows = np.flatnonzero(lens)
        if not len(rows):
            return slice(0, 0)
        first, last = int(starts[rows[0]]), int(starts[rows[-1] + 1])
        if last - first == int(lens.sum()):
            return slice(first, last)
        return send(tensor_of(np.flatnonzero(taken.repeat(counts))), self.device)


@dataclass(frozen=True)
class MLASparseInputs(MLAInputs):
    """What one layer of sparse latent attention brings.

    Attributes:
        selected: ``[num_tokens, topk]`` int32: the positions that each token attends over, of its own request,
            ascending, then -1; as an indexer selects them: of a sequence no longer than ``topk`` all up to the token's
            own.
    """

    selected: Tensor


class MLASparseImpl(LatentImpl[MLASparseMetadata, MLASparseInputs]):
    """Stores latent vectors, and attends over those that were selected."""

    @override
    def forward(self, inputs: MLASparseInputs, kv_cache: Tensor, attn_metadata: MLASparseMetadata) -> Tensor:
        """The heads' results, ``[num_tokens, num_heads, v_head_dim]``; see `InputsImpl.forward`.

        Raises:
            ValueError: there is not a row of selected positions for each token.
        """
        layer, query, sparse = self.layer, inputs.query, attn_metadata.sparse
        if inputs.selected.dim() != 2 or len(inputs.selected) != len(query):
            raise ValueError(
                f"selected is {tuple(inputs.selected.shape)}; it must be [{len(query)}, topk], a row for each token"
            )
        kernels = select_kernels(kv_cache.device, kv_cache.dtype)
        write_latents(kernels, layer, inputs, kv_cache, attn_metadata)
        out = query.new_zeros(len(query), layer.num_heads, layer.v_head_dim)
        if sparse is not None:
            out[sparse.tokens] = _attend_selected(layer, inputs, kv_cache, sparse)
        if attn_metadata.decode is not None:
            decoded = attn_metadata.num_decode_tokens
            part = MLAInputs(query[:decoded], inputs.latent[:decoded], inputs.kv_up)
            out[:decoded] = attend_decodes(kernels, layer, part, kv_cache, attn_metadata.decode)
        if attn_metadata.prefill is not None:
            dense = attn_metadata.dense
            part = MLAInputs(query[dense], inputs.latent[dense], inputs.kv_up)
            out[dense] = attend_prefills(kernels, layer, part, kv_cache, attn_metadata.prefill)
        return out


def _attend_selected(
    layer: LatentLayerConfig, inputs: MLASparseInputs, kv_cache: Tensor, sparse: MLASparseTokens
) -> Tensor:
    tokens = sparse.tokens
    attended = sparse_attention(
        absorb(inputs.query[tokens], inputs.kv_up, layer),
        kv_cache,
        sparse.slots(inputs.selected[tokens]),
        value_size=layer.kv_lora_rank,
        scale=layer.scale,
    )
    return value_of(attended, inputs.kv_up, layer)


MLA_SPARSE = LatentAdapter("mla_sparse", MLASparseMetadataBuilder, MLASparseImpl)
