"""Sparse latent attention (DeepSeek-V3.2): each token attends over the latent vectors that an indexer selected for it.

Where a sequence is no longer than what is selected, everything is: there the dense paths of `mla` give the same, and
cost less. Rows are told apart one by one, so that a short prompt beside a long one stays cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import LatentAdapter
from genericbuilders.backends.host import Ints, send
from genericbuilders.backends.mla_attend import (
    MLAInputs,
    absorb,
    attend_decodes,
    attend_prefills,
    value_of,
    write_latents,
)
from genericbuilders.backends.mla_common import MLACommonMetadata, MLACommonMetadataBuilder, MLAPrefill
from genericbuilders.builder import LatentImpl
from genericbuilders.config import EngineConfig, LatentLayerConfig
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


@dataclass(frozen=True, eq=False)
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
        return torch.searchsorted(ends, tokens.to(ends.dtype), right=True).clamp(max=len(ends) - 1)

    def slots(self, selected: Tensor) -> Tensor:
        """``[num_tokens, num_keys]`` int64: where the selected positions stand in the cache; -1 for none.

        Args:
            selected: ``[num_tokens, topk]`` int32: positions of each token's own request, ascending, then -1.
        """
        selected = selected[:, : self.max_seq_len]
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
        common = common_attn_metadata
        metadata = super().build(common_prefix_len, common, fast_build)
        decodes, decoded = metadata.num_decodes, metadata.num_decode_tokens
        counts, short = self._short(common, 0)
        if short.all():
            return replace(metadata, dense=slice(decoded, metadata.num_actual_tokens))
        short[:decodes] = short[:decodes].all()
        dense = short.repeat(counts)
        sparse = MLASparseTokens(
            self._places(~dense),
            common.query_start_loc,
            common.block_table_tensor,
            self.kv_cache_spec.block_size,
            common.max_seq_len,
        )
        decode = metadata.decode if short[:decodes].all() else None
        dense[:decoded] = False
        return replace(metadata, decode=decode, dense=self._places(dense), sparse=sparse)

    @override
    def update_block_table(
        self, metadata: MLASparseMetadata, blk_table: Tensor, slot_mapping: Tensor
    ) -> MLASparseMetadata:
        moved = super().update_block_table(metadata, blk_table, slot_mapping)
        if metadata.sparse is None:
            return moved
        return replace(moved, sparse=replace(metadata.sparse, block_table=blk_table))

    @override
    def _prefill(
        self, common: CommonAttentionMetadata, first: int, taken: npt.NDArray[np.bool_] | None = None
    ) -> MLAPrefill | None:
        counts, short = self._short(common, first)
        if short.all():
            return super()._prefill(common, first)
        return super()._prefill(common, first, short) if short[counts > 0].any() else None

    def _short(self, common: CommonAttentionMetadata, first: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """The new tokens of the rows from ``first`` on, and which rows select all that they see, or have none."""
        starts: Ints = common.query_start_loc_cpu.numpy()[first:]
        counts = starts[1:] - starts[:-1]
        return counts, (common.seq_lens_cpu.numpy()[first : common.num_reqs] <= self.topk) | (counts == 0)

    def _places(self, taken: npt.NDArray[np.bool_]) -> Tensor | slice:
        found = np.flatnonzero(taken)
        if not len(found):
            return slice(0, 0)
        first, last = int(found[0]), int(found[-1])
        return slice(first, last + 1) if last - first + 1 == len(found) else send(torch.as_tensor(found), self.device)


@dataclass(frozen=True)
class MLASparseInputs(MLAInputs):
    """What one layer of sparse latent attention brings.

    Attributes:
        selected: ``[num_tokens, topk]`` int32: the positions that each token attends over, of its own request,
            ascending, then -1; as an indexer selects them. Those of a sequence no longer than ``topk`` are not read.
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
