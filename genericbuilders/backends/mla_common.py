"""What back ends of latent attention share: a batch as decodes and prefills, and the context of prefills in chunks.

A decode, with its draft tokens, attends over the latent vectors themselves, of which a page holds one a token for all
heads. A prefill is cheaper with keys and values expanded for each head. Those of its context, the tokens computed
before, would not fit into memory at once, so that they are expanded chunk by chunk, and partial results merged by their
log-sum-exp.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.backends.host import check_blocks, check_table, computed_tokens, send
from genericbuilders.builder import AttentionCGSupport, AttentionMetadataBuilder
from genericbuilders.config import EngineConfig, check_latents
from genericbuilders.kernels.ints import Ints, largest, tensor_of
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVQuantMode, MLAAttentionSpec, cdiv

__all__ = [
    "Bools",
    "ContextChunk",
    "MLACommonMetadata",
    "MLACommonMetadataBuilder",
    "MLADecode",
    "MLAPrefill",
    "VectorCacheBuilder",
    "cut_context",
    "prefill_starts",
    "require_plain",
]

V = TypeVar("V")
M = TypeVar("M", bound="MLACommonMetadata")

Bools: TypeAlias = npt.NDArray[np.bool_]

# Tokens whose keys and values may be expanded at once, whatever the run's limits.
MAX_WORKSPACE_TOKENS = 64 * 1024


@dataclass(frozen=True, eq=False)
class ContextChunk:
    """A part of the prefills' context, of equally many tokens for each that has so many left.

    Attributes:
        cu_seq_lens: ``[num_prefills + 1]`` int32: where each prefill's tokens start in the chunk.
        starts: ``[num_prefills]`` int32 on the host: the position of the first of them in its sequence.
        lengths: ``[num_prefills]`` int32 on the host: how many there are.
        block_table: ``[num_prefills, max_blocks]`` int32: the prefills' blocks.
        block_size: tokens in a block.
        max_seq_len: the most tokens of one prefill.
        num_tokens: tokens of all.
    """

    cu_seq_lens: Tensor
    starts: Ints
    lengths: Ints
    block_table: Tensor
    block_size: int
    max_seq_len: int
    num_tokens: int

    @cached_property
    def slots(self) -> Tensor:
        """``[num_tokens]`` int64: where each token stands in the cache; worked out when the first layer asks."""
        row = np.arange(len(self.lengths)).repeat(self.lengths)
        ends = self.lengths.cumsum()
        position = np.arange(self.num_tokens) + (self.starts - ends + self.lengths)[row]
        device = self.block_table.device
        place = torch.as_tensor(position).to(device)
        block = self.block_table[torch.as_tensor(row).to(device), place // self.block_size].long()
        return block * self.block_size + place % self.block_size


@dataclass(frozen=True, eq=False)
class MLADecode:
    """The rows at the front that bring one token each, or that and its draft tokens.

    Attributes:
        query_start_loc: ``[num_decodes + 1]`` int32.
        seq_lens: ``[num_decodes]`` int32.
        block_table: ``[num_decodes, max_blocks]`` int32.
        max_query_len: the most new tokens of one.
        max_seq_len: the longest sequence.
    """

    query_start_loc: Tensor
    seq_lens: Tensor
    block_table: Tensor
    max_query_len: int
    max_seq_len: int


@dataclass(frozen=True, eq=False)
class MLAPrefill:
    """All other rows.

    Attributes:
        query_start_loc: ``[num_prefills + 1]`` int32, from 0.
        max_query_len: the most new tokens of one.
        context: what was computed before, in chunks; empty where nothing was.
    """

    query_start_loc: Tensor
    max_query_len: int
    context: tuple[ContextChunk, ...]


@dataclass
class MLACommonMetadata:
    """One batch for latent attention; names mean what they mean in vLLM.

    Attributes:
        num_reqs: rows, padding included.
        num_actual_tokens: new tokens of all rows.
        num_decodes: rows at the front of one token each, or that and its draft tokens.
        num_decode_tokens: their tokens.
        num_prefills: rows behind them.
        query_start_loc: ``[num_reqs + 1]`` int32.
        seq_lens: ``[num_reqs]`` int32.
        block_table: ``[num_reqs, max_blocks]`` int32.
        slot_mapping: ``[num_tokens]`` int64.
        max_query_len: the longest row's new tokens.
        max_seq_len: the longest row's sequence.
        decode: the decodes; ``None`` without any.
        prefill: the prefills; ``None`` without any.
    """

    num_reqs: int
    num_actual_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    query_start_loc: Tensor
    seq_lens: Tensor
    block_table: Tensor
    slot_mapping: Tensor
    max_query_len: int
    max_seq_len: int
    decode: MLADecode | None
    prefill: MLAPrefill | None


class VectorCacheBuilder(AttentionMetadataBuilder[V, MLAAttentionSpec]):
    """Its layers' cache holds one vector a token, in the spec's dtype."""

    @classmethod
    @override
    def get_kv_cache_shape(cls, num_blocks: int, kv_cache_spec: MLAAttentionSpec) -> tuple[int, ...]:
        return (num_blocks, kv_cache_spec.block_size, kv_cache_spec.head_size)

    @classmethod
    @override
    def get_kv_cache_dtype(cls, kv_cache_spec: MLAAttentionSpec) -> torch.dtype:
        return kv_cache_spec.dtype


class MLACommonMetadataBuilder(VectorCacheBuilder[M]):
    """Builds the metadata ``M`` of one back end of latent attention; a subclass names it.

    Attributes:
        workspace_tokens: tokens of context that are expanded at once.
        decode_query_len: the most new tokens of a row that is a decode: one, and its draft tokens.

    Raises:
        ValueError: the spec's cache is quantised, has a window, or more than one head; or a layer caches vectors of
            another size.
    """

    def __init__(
        self, kv_cache_spec: MLAAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self._metadata_type = self.metadata_type
        require_plain(kv_cache_spec, layer_names)
        check_latents(config, layer_names, kv_cache_spec.head_size)
        wanted = max(8 * config.max_model_len, 4 * config.max_num_seqs * kv_cache_spec.block_size)
        self.workspace_tokens: int = min(wanted, MAX_WORKSPACE_TOKENS)
        self.decode_query_len: int = 1 + config.num_speculative_tokens

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: MLAAttentionSpec) -> AttentionCGSupport:
        """Decodes of one token: only they read what stands in the batch's own buffers alone."""
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    @property
    @abstractmethod
    def metadata_type(self) -> type[M]:
        """This back end's metadata: a subclass of `MLACommonMetadata` whose further fields, if any, have defaults."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> M:
        return self._describe(common_attn_metadata)

    def _describe(self, common: CommonAttentionMetadata, dense: Bools | bool = True) -> M:
        """The batch's metadata.

        Args:
            common: the batch.
            dense: whether rows attend densely; or ``[num_reqs]``: the prefills that do, beside the decodes.
        """
        count = common.num_reqs
        check_table(common, self.kv_cache_spec.block_size)
        most, longest = min(common.max_query_len, self.decode_query_len), common.max_seq_len
        decodes, decoded, bounds = count, common.num_actual_tokens, prefill_starts(common, most)
        decode = prefill = None
        starts, lens, table = common.query_start_loc, common.seq_lens, common.block_table_tensor
        computed = computed_tokens(common) if common.max_query_len > 1 else None
        if bounds is not None and computed is not None:
            decodes, decoded = count + 1 - len(bounds), bounds.item(0)
            if dense is not False:
                taken = None if dense is True else dense[decodes:]
                prefill = self._prefill(common, bounds, computed[decodes:], taken)
                if decodes:
                    decode = MLADecode(starts[: decodes + 1], lens[:decodes], table[:decodes], most, longest)
        elif count and dense is not False:
            decode = MLADecode(starts, lens, table, most, longest)
        return self._metadata_type(
            count,
            common.num_actual_tokens,
            decodes,
            decoded,
            count - decodes,
            starts,
            lens,
            table,
            common.slot_mapping,
            common.max_query_len,
            common.max_seq_len,
            decode,
            prefill,
        )

    @override
    def update_block_table(self, metadata: M, blk_table: Tensor, slot_mapping: Tensor) -> M:
        decodes, decode, prefill = metadata.num_decodes, metadata.decode, metadata.prefill
        size = self.kv_cache_spec.block_size
        check_blocks(blk_table, metadata.num_reqs, metadata.max_seq_len, size)
        if decode is not None:
            decode = replace(decode, block_table=blk_table[:decodes])
        if prefill is not None:
            moved = tuple(replace(each, block_table=blk_table[decodes:], block_size=size) for each in prefill.context)
            prefill = replace(prefill, context=moved)
        return replace(metadata, block_table=blk_table, slot_mapping=slot_mapping, decode=decode, prefill=prefill)

    def _prefill(
        self, common: CommonAttentionMetadata, bounds: Ints, computed: Ints, taken: Bools | None
    ) -> MLAPrefill | None:
        """The batch's last rows, whose tokens start at ``bounds``; those not ``taken`` are left without tokens."""
        first = common.num_reqs - len(computed)
        if taken is not None:
            bounds = _starts((bounds[1:] - bounds[:-1]) * taken)
            if not bounds[-1]:
                return None
            loc = send(tensor_of(bounds), self.device)
        else:
            loc = send(tensor_of(bounds - bounds[0]), self.device) if first else common.query_start_loc
        chunks: tuple[ContextChunk, ...] = ()
        if np.count_nonzero(computed):
            # What the buffers hold for a row without tokens is nobody's context.
            chunks = self._chunks(computed * (bounds[1:] > bounds[:-1]), common.block_table_tensor[first:])
        return MLAPrefill(loc, common.max_query_len, chunks)

    def _chunks(self, context: Ints, block_table: Tensor) -> tuple[ContextChunk, ...]:
        found: list[ContextChunk] = []
        for starts, lengths in cut_context(context, self.workspace_tokens, self.kv_cache_spec.block_size):
            cu = _starts(lengths)
            size, longest = self.kv_cache_spec.block_size, largest(lengths)
            sent = send(tensor_of(cu), self.device)
            found.append(ContextChunk(sent, starts, lengths, block_table, size, longest, int(cu[-1])))
        return tuple(found)


def cut_context(context: Ints, workspace_tokens: int, block_size: int) -> list[tuple[Ints, Ints]]:
    """Cut the rows' contexts into chunks that fit the workspace: where every row's part starts, and its length.

    A chunk has as many tokens of every row, in whole blocks where that leaves any, so that each row's part is one run.

    Args:
        context: ``[num_rows]``: tokens computed before.
        workspace_tokens: the most tokens of a chunk, of all rows together.
        block_size: tokens in a block.
    """
    longest, rows = largest(context), int(np.count_nonzero(context))
    if not longest:
        return []
    share = max(1, workspace_tokens // rows)
    share = max(share // block_size * block_size, min(share, block_size))
    return [
        (np.minimum(start, context).astype(np.int32), np.clip(context - start, 0, share).astype(np.int32))
        for start in range(0, cdiv(longest, share) * share, share)
    ]


def prefill_starts(common: CommonAttentionMetadata, most: int = 1) -> Ints | None:
    """``[num_prefills + 1]``: where the tokens start of the rows behind the decodes; ``None`` without such rows.

    Padding attends over nothing, wherever it stands.

    Args:
        common: the batch.
        most: new tokens of a decode. Decodes are the rows at the front that have no more.
    """
    if common.max_query_len <= most or not common.num_reqs:
        return None
    starts: Ints = common.query_start_loc_cpu.numpy()
    return starts[int((starts[1:] - starts[:-1] > most).argmax()) :]


def require_plain(spec: MLAAttentionSpec, layer_names: Sequence[str]) -> None:
    """Check that the cache holds one plain vector a token.

    Raises:
        ValueError: it is quantised, has a window, or more than one head.
    """
    plain = MLAAttentionSpec(
        block_size=spec.block_size,
        num_kv_heads=1,
        head_size=spec.head_size,
        dtype=spec.dtype,
        page_size_padded=spec.page_size_padded,
        alignment=spec.alignment,
        model_version=spec.model_version,
    )
    if spec != plain or spec.kv_quant_mode is not KVQuantMode.NONE:
        raise ValueError(
            f"layers {list(layer_names)} have {spec!r}; latent attention is served with one plain vector a token for "
            "all heads, without a window or a quantised cache"
        )


def _starts(lengths: Ints) -> Ints:
    starts = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=starts[1:])
    return starts
