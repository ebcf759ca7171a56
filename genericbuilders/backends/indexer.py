"""The lightning indexer (DeepSeek-V3.2): selects the tokens that a layer of sparse attention attends over.

It has a cache of its own, of one small key a token. A prefill's scores, one for each of its tokens and each token
before, can be more than memory holds; so prefills are cut into chunks of query tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import IndexAdapter
from genericbuilders.backends.host import check_lengths, check_table, computed_tokens, send
from genericbuilders.backends.index_plan import IndexPiece, cut_queries
from genericbuilders.backends.mla_common import VectorCacheBuilder, prefill_starts, require_plain
from genericbuilders.builder import AttentionCGSupport, IndexImpl
from genericbuilders.config import EngineConfig
from genericbuilders.kernels.ints import Ints, largest, tensor_of
from genericbuilders.kernels.select import select_kernels
from genericbuilders.kernels.sparse.portable import select_topk
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.sparse_config import check_indexes
from genericbuilders.specs import MLAAttentionSpec

__all__ = [
    "INDEXER",
    "IndexRows",
    "IndexerImpl",
    "IndexerInputs",
    "IndexerMetadata",
    "IndexerMetadataBuilder",
]

# Bytes of the scores of one chunk, [query tokens, key tokens] in float32.
MAX_LOGITS_BYTES = 256 * 2**20
LOGIT_BYTES = 4


@dataclass(frozen=True, eq=False)
class IndexRows:
    """Some of a batch's rows, or a part of one, as a batch of its own.

    Attributes:
        token_start: the first of their tokens in the batch.
        token_end: behind the last.
        row_start: the first row.
        query_start_loc: ``[num_rows + 1]`` int32, from 0.
        seq_lens: ``[num_rows]`` int32: up to the last of these tokens.
        block_table: ``[num_rows, max_blocks]`` int32.
        max_query_len: the most tokens of a row.
        max_seq_len: the longest sequence.
    """

    token_start: int
    token_end: int
    row_start: int
    query_start_loc: Tensor
    seq_lens: Tensor
    block_table: Tensor
    max_query_len: int
    max_seq_len: int

    @property
    def logits_bytes(self) -> int:
        """Bytes of the scores, each row padded to the most tokens and the longest sequence."""
        return LOGIT_BYTES * len(self.block_table) * self.max_query_len * self.max_seq_len

    def moved(self, block_table: Tensor) -> IndexRows:
        """The same rows in another group's ``block_table``, of the whole batch."""
        return replace(self, block_table=block_table[self.row_start : self.row_start + len(self.block_table)])


@dataclass
class IndexerMetadata:
    """One batch for indexers; names mean what they mean in vLLM.

    Attributes:
        num_reqs: rows, padding included.
        num_actual_tokens: new tokens of all rows.
        num_decodes: rows at the front of one token each.
        num_decode_tokens: their tokens.
        num_prefills: rows behind them.
        slot_mapping: ``[num_tokens]`` int64.
        decode: the decodes; ``None`` without any.
        chunks: the prefills' tokens, in order.
    """

    num_reqs: int
    num_actual_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    slot_mapping: Tensor
    decode: IndexRows | None
    chunks: tuple[IndexRows, ...]


class IndexerMetadataBuilder(VectorCacheBuilder[IndexerMetadata]):
    """Builds `IndexerMetadata`.

    Attributes:
        topk: the most tokens that are selected for a token.
        max_logits_bytes: a bound on the scores of one chunk. Only a chunk of one token may exceed it: it has as many
            scores as its sequence has tokens.

    Raises:
        ValueError: the spec's cache is quantised, has a window, or more than one head; a layer's keys are of another
            size or it is no indexer; or layers differ in ``topk``.
    """

    def __init__(
        self, kv_cache_spec: MLAAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        require_plain(kv_cache_spec, layer_names)
        self.topk: int = check_indexes(config, layer_names, kv_cache_spec.head_size)
        self.max_logits_bytes: int = MAX_LOGITS_BYTES

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: MLAAttentionSpec) -> AttentionCGSupport:
        """Decodes of one token: prefills are cut by their lengths, which a graph does not know."""
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> IndexerMetadata:
        common = common_attn_metadata
        check_table(common, self.kv_cache_spec.block_size)
        count, starts = common.num_reqs, prefill_starts(common)
        decodes, tokens = count, common.num_actual_tokens
        chunks: tuple[IndexRows, ...] = ()
        if starts is not None:
            decodes, tokens = count + 1 - len(starts), starts.item(0)
            chunks = self._chunks(common, decodes, starts)
        decode = None
        if decodes:
            decode = IndexRows(
                0,
                tokens,
                0,
                common.query_start_loc[: decodes + 1],
                common.seq_lens[:decodes],
                common.block_table_tensor[:decodes],
                1,
                common.max_seq_len,
            )
        return IndexerMetadata(
            count, common.num_actual_tokens, decodes, tokens, count - decodes, common.slot_mapping, decode, chunks
        )

    @override
    def update_block_table(self, metadata: IndexerMetadata, blk_table: Tensor, slot_mapping: Tensor) -> IndexerMetadata:
        decode = metadata.decode
        return replace(
            metadata,
            slot_mapping=slot_mapping,
            decode=None if decode is None else decode.moved(blk_table),
            chunks=tuple(chunk.moved(blk_table) for chunk in metadata.chunks),
        )

    def _chunks(self, common: CommonAttentionMetadata, first: int, starts: Ints) -> tuple[IndexRows, ...]:
        computed_tokens(common)
        counts = starts[1:] - starts[:-1]
        check_lengths(common)
        lengths = np.where(counts > 0, common.seq_lens_cpu.numpy()[first : common.num_reqs], 0)
        pieces = cut_queries(counts, lengths, self.max_logits_bytes // LOGIT_BYTES, self.topk)
        return tuple(self._chunk(common, first, int(starts[piece.row]), piece) for piece in pieces)

    def _chunk(self, common: CommonAttentionMetadata, first: int, token: int, piece: IndexPiece) -> IndexRows:
        row, rows = first + piece.row, len(piece.counts)
        bounds = np.empty(2 * rows + 1, dtype=np.int32)
        bounds[0] = 0
        np.add.accumulate(piece.counts, out=bounds[1 : rows + 1])
        bounds[rows + 1 :] = piece.lengths
        sent = send(tensor_of(bounds), self.device)
        return IndexRows(
            token + piece.skipped,
            token + piece.skipped + int(bounds[rows]),
            row,
            sent[: rows + 1],
            sent[rows + 1 :],
            common.block_table_tensor[row : row + rows],
            largest(piece.counts),
            largest(piece.lengths),
        )


@dataclass(frozen=True)
class IndexerInputs:
    """What one indexer is given.

    Attributes:
        query: ``[num_tokens, num_heads, head_size]``, rotated.
        key: ``[num_tokens, head_size]``, normalised and rotated.
        weights: ``[num_tokens, num_heads]`` float32: of each head's scores in their sum.
    """

    query: Tensor
    key: Tensor
    weights: Tensor


class IndexerImpl(IndexImpl[IndexerMetadata, IndexerInputs]):
    """Stores keys, and selects the positions whose keys score best; see `SelectTopk` for how they score."""

    @override
    def forward(self, inputs: IndexerInputs, kv_cache: Tensor, attn_metadata: IndexerMetadata) -> Tensor:
        """The selected positions, ``[num_tokens, topk]`` int32: ascending, then -1; see `InputsImpl.forward`.

        A token selects among its own request's positions up to its own. Of equal scores the earlier one is taken. Rows
        behind the batch's tokens are -1.

        Raises:
            ValueError: queries, keys and weights are not those of this layer's heads.
        """
        layer, query, key = self.layer, inputs.query, inputs.key
        if query.shape[1:] != (layer.num_heads, layer.head_size) or key.shape != (len(query), layer.head_size):
            raise ValueError(
                f"query is {tuple(query.shape)} and key {tuple(key.shape)}; the layer has {layer.num_heads} heads of "
                f"size {layer.head_size}"
            )
        kernels = select_kernels(kv_cache.device, kv_cache.dtype)
        keys = kv_cache[:, :, None]
        # One vector a token: there are no values beside it.
        kernels.write_kv_cache(key[:, None], key[:, None], keys, keys, attn_metadata.slot_mapping)
        out = torch.full((len(query), layer.topk), -1, dtype=torch.int32, device=query.device)
        decode = attn_metadata.decode
        for rows in attn_metadata.chunks if decode is None else (decode, *attn_metadata.chunks):
            tokens = slice(rows.token_start, rows.token_end)
            out[tokens] = select_topk(
                query[tokens],
                inputs.weights[tokens],
                kv_cache,
                query_start_loc=rows.query_start_loc,
                seq_lens=rows.seq_lens,
                block_table=rows.block_table,
                scale=layer.scale,
                topk=layer.topk,
                max_query_len=rows.max_query_len,
                max_seq_len=rows.max_seq_len,
            )
        return out


INDEXER = IndexAdapter("indexer", IndexerMetadataBuilder, IndexerImpl)
