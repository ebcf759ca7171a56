"""Attention over a prefix that all rows share, once for all of them, and over the rest of each row; merged exactly.

The prefix is read once for all new tokens, as one dense product with their queries (cascade attention). What each part
weighs follows from its log-sum-exp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from genericbuilders.backends.host import check_lengths
from genericbuilders.backends.paged import PagedMetadata
from genericbuilders.kernels.ints import Ints
from genericbuilders.kernels.merge import merge_prefix
from genericbuilders.kernels.scoring import Scoring
from genericbuilders.kernels.select import AttentionKernels
from genericbuilders.metadata import CommonAttentionMetadata

__all__ = ["CommonPrefix", "attend_split", "rows_with_tokens", "split_prefix"]


@dataclass(frozen=True)
class CommonPrefix:
    """A batch cut behind the blocks that stand at the front of every row.

    Attributes:
        num_tokens: the prefix's.
        num_columns: columns of the block table that hold it.
        row: a row that has it, and new tokens.
        query_start_loc: ``[2]`` int32: all new tokens as one row.
        seq_lens: ``[1]`` int32: the prefix as its sequence.
        rest_lens: ``[num_reqs]`` int32: each row's sequence behind the prefix.
        max_rest_len: the longest of them.
    """

    num_tokens: int
    num_columns: int
    row: int
    query_start_loc: Tensor
    seq_lens: Tensor
    rest_lens: Tensor
    max_rest_len: int


def split_prefix(common: CommonAttentionMetadata, num_tokens: int, block_size: int) -> CommonPrefix | None:
    """Cut a batch behind the whole blocks of a prefix that all rows with tokens share; ``None`` if there is none.

    Args:
        common: the batch; no row's new tokens lie in the prefix.
        num_tokens: tokens at the front of every sequence that stand in the same blocks.
        block_size: tokens in one block.

    Raises:
        ValueError: a row with tokens had not computed the whole prefix before; it is named.
    """
    columns = num_tokens // block_size
    if columns < 1 or common.num_reqs < 2:
        return None
    whole = columns * block_size
    loc, lens = common.query_start_loc, common.seq_lens
    active = rows_with_tokens(common)
    if not len(active):
        return None
    computed: Ints = common.num_computed_tokens_cpu.numpy()[active]
    if computed.min() < whole:
        row = int(active[computed.argmin()])
        raise ValueError(
            f"all rows are said to share a prefix of {whole} tokens that was computed before, but row {row} has "
            f"computed {computed.min()}"
        )
    return CommonPrefix(
        whole,
        columns,
        int(active[0]),
        loc.new_tensor([0, common.num_actual_tokens]),
        lens.new_full((1,), whole),
        (lens[: common.num_reqs] - whole).clamp_(min=0),
        max(common.max_seq_len - whole, 0),
    )


def rows_with_tokens(common: CommonAttentionMetadata) -> Ints:
    """The rows that bring tokens: what stands in the block table for others, as padding, is nobody's.

    Raises:
        ValueError: see `check_lengths`.
    """
    check_lengths(common)
    starts: Ints = common.query_start_loc_cpu.numpy()[: common.num_reqs + 1]
    return np.flatnonzero(starts[1:] > starts[:-1])


def attend_split(
    kernels: AttentionKernels,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    prefix: CommonPrefix,
    metadata: PagedMetadata,
    *,
    scale: float,
    causal: bool,
    scoring: Scoring,
) -> Tensor:
    """All new tokens over the prefix as one request, then each over the rest of its own row; merged.

    Args:
        kernels: what attends.
        query: ``[num_tokens, num_heads, head_size]``.
        key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``, the new tokens written.
        value_cache: likewise.
        prefix: the cut.
        metadata: the batch that is cut.
        scale: factor on the scores.
        causal: whether the layer lets a token see only itself and what came before, if the batch does, too.
        scoring: what else happens to the scores; nothing that depends on positions. Logits of sinks count once.

    Returns:
        ``[num_tokens, num_heads, head_size]``; rows behind the batch's tokens are zero.
    """
    lse = query.new_empty(2, query.shape[0], query.shape[1], dtype=torch.promote_types(query.dtype, torch.float32))
    shared = kernels.paged_attention(
        query,
        key_cache,
        value_cache,
        query_start_loc=prefix.query_start_loc,
        seq_lens=prefix.seq_lens,
        block_table=metadata.block_table[prefix.row : prefix.row + 1],
        scale=scale,
        causal=False,
        max_query_len=query.shape[0],
        max_seq_len=prefix.num_tokens,
        scoring=scoring if scoring.sinks is None else replace(scoring, sinks=None),
        lse=lse[0],
    )
    own = kernels.paged_attention(
        query,
        key_cache,
        value_cache,
        query_start_loc=metadata.query_start_loc,
        seq_lens=prefix.rest_lens,
        block_table=metadata.block_table[:, prefix.num_columns :],
        scale=scale,
        causal=causal and metadata.causal,
        max_query_len=metadata.max_query_len,
        max_seq_len=prefix.max_rest_len,
        scoring=scoring,
        lse=lse[1],
    )
    return merge_prefix(shared, lse[0], own, lse[1])
