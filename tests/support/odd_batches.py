"""Batches that are odd or wrong, each made of a right one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from attention_batches import ints

from genericbuilders.metadata import CommonAttentionMetadata

__all__ = [
    "ODD",
    "STALE",
    "WRONG",
    "Change",
    "block_negative",
    "block_too_large",
    "fewer_tokens",
    "generous_bounds",
    "longer_query",
    "negative_length",
    "padded",
    "shuffled",
    "slot_too_large",
    "strided_rows",
]

Change = Callable[[CommonAttentionMetadata], CommonAttentionMetadata]
STALE = 2**31 - 1


def shuffled(common: CommonAttentionMetadata, block_size: int, columns: int, seed: int) -> CommonAttentionMetadata:
    """The same batch with its blocks in another order, and ``columns`` more columns of garbage."""
    table = common.block_table_tensor
    num_blocks = 1 + max([0, *ints(table.flatten())])
    order = torch.cat(
        (torch.zeros(1), 1 + torch.randperm(num_blocks - 1, generator=torch.Generator().manual_seed(seed)))
    )
    order = order.int()
    slots = common.slot_mapping
    moved = order[slots // block_size].long() * block_size + slots % block_size
    wide = torch.full((len(table), table.shape[1] + columns), STALE, dtype=torch.int32)
    wide[:, : table.shape[1]] = order[table.long()]
    for row, length in enumerate(ints(common.seq_lens)):
        wide[row, -(-length // block_size) :] = STALE
    return replace(common, block_table_tensor=wide, slot_mapping=moved)


def padded(common: CommonAttentionMetadata, rows: int, tokens: int, stale: int) -> CommonAttentionMetadata:
    """Rows without tokens, of ``stale`` length, behind the others, and slots of padding."""
    last = common.query_start_loc[-1:]
    starts = torch.cat((common.query_start_loc, last.expand(rows)))
    lengths = torch.cat((common.seq_lens, torch.full((rows,), stale, dtype=torch.int32)))
    table = common.block_table_tensor
    wide = torch.cat((table, torch.full((rows, table.shape[1]), STALE if stale else 0, dtype=torch.int32)))
    return replace(
        common,
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lengths,
        seq_lens_cpu=lengths,
        num_computed_tokens_cpu=torch.cat(
            (common.num_computed_tokens_cpu, torch.full((rows,), stale, dtype=torch.int32))
        ),
        num_reqs=common.num_reqs + rows,
        block_table_tensor=wide,
        slot_mapping=torch.cat((common.slot_mapping, torch.full((tokens,), -1))),
    )


def longer_query(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The last row brings more tokens than its sequence has."""
    lengths = common.seq_lens.clone()
    lengths[-1] = common.query_start_loc[-1] - common.query_start_loc[-2] - 1
    return replace(
        common,
        seq_lens=lengths,
        seq_lens_cpu=lengths,
        num_computed_tokens_cpu=lengths - common.query_start_loc_cpu.diff(),
        max_seq_len=int(lengths.max()),
    )


def negative_length(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The first row's sequence has fewer than no tokens."""
    lengths = common.seq_lens.clone()
    lengths[0] = -3
    return replace(
        common,
        seq_lens=lengths,
        seq_lens_cpu=lengths,
        num_computed_tokens_cpu=lengths - common.query_start_loc_cpu.diff(),
        max_seq_len=int(lengths.max()),
    )


def narrow_table(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The longest sequence, the first, needs one column more."""
    return replace(common, block_table_tensor=common.block_table_tensor[:, :-1].contiguous())


def narrow_view(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The same as a view, behind which the blocks stand that it leaves out."""
    return replace(common, block_table_tensor=common.block_table_tensor[:, :-1])


def set_block(common: CommonAttentionMetadata, block: int) -> CommonAttentionMetadata:
    """The first row has another block."""
    table = common.block_table_tensor.clone()
    # The last that the first row needs: a window and a chunk see it, too.
    table[0, -1] = block
    return replace(common, block_table_tensor=table)


def block_too_large(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """A block that the cache does not have."""
    return set_block(common, STALE)


def block_negative(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """A block that no cache has."""
    return set_block(common, -1)


def slot_too_large(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """A slot that the cache does not have."""
    slots = common.slot_mapping.clone()
    slots[-1] = 10**9
    return replace(common, slot_mapping=slots)


def fewer_tokens(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The rows' tokens are more than the inputs have."""
    return replace(common, slot_mapping=common.slot_mapping[:-1])


def fewer_rows_of_table(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The block table has no row for the last request."""
    return replace(common, block_table_tensor=common.block_table_tensor[:-1])


def fewer_lengths(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """There is no length for the last request."""
    return replace(
        common,
        seq_lens=common.seq_lens[:-1],
        seq_lens_cpu=common.seq_lens_cpu[:-1],
        num_computed_tokens_cpu=common.num_computed_tokens_cpu[:-1],
    )


WRONG: Sequence[Change] = (
    longer_query,
    negative_length,
    narrow_table,
    narrow_view,
    block_too_large,
    block_negative,
    slot_too_large,
    fewer_tokens,
    fewer_rows_of_table,
    fewer_lengths,
)


def long_lengths(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """Lengths in int64."""
    return replace(
        common,
        seq_lens=common.seq_lens.long(),
        seq_lens_cpu=common.seq_lens_cpu.long(),
        num_computed_tokens_cpu=common.num_computed_tokens_cpu.long(),
    )


def long_starts(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """Starts in int64."""
    starts = common.query_start_loc.long()
    return replace(common, query_start_loc=starts, query_start_loc_cpu=starts)


def long_table(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """Blocks in int64."""
    return replace(common, block_table_tensor=common.block_table_tensor.long())


def strided_rows(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The table's rows are part of longer ones."""
    table = common.block_table_tensor
    wide = torch.full((len(table), 3 * table.shape[1]), STALE, dtype=table.dtype)
    wide[:, : table.shape[1]] = table
    return replace(common, block_table_tensor=wide[:, : table.shape[1]])


def strided_columns(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The table's columns have gaps."""
    return replace(common, block_table_tensor=common.block_table_tensor.T.contiguous().T)


def strided_slots(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The slots have gaps."""
    return replace(common, slot_mapping=common.slot_mapping.repeat_interleave(2)[::2])


def strided_lengths(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The lengths and starts have gaps."""
    lengths, starts = common.seq_lens.repeat_interleave(2)[::2], common.query_start_loc.repeat_interleave(2)[::2]
    computed = common.num_computed_tokens_cpu.repeat_interleave(2)[::2]
    return replace(
        common,
        seq_lens=lengths,
        seq_lens_cpu=lengths,
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        num_computed_tokens_cpu=computed,
    )


def stale_padding(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """Padding whose buffers still hold what an earlier batch left there."""
    return padded(common, 2, 3, stale=STALE)


def generous_bounds(common: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """The longest sequence is stated to be as long as the model allows, for which the table has room."""
    table = common.block_table_tensor
    wide = torch.full((len(table), 100), STALE, dtype=table.dtype)
    wide[:, : table.shape[1]] = table
    return replace(common, block_table_tensor=wide, max_seq_len=400)


ODD: Sequence[Change] = (
    long_lengths,
    long_starts,
    long_table,
    strided_rows,
    strided_columns,
    strided_slots,
    strided_lengths,
    stale_padding,
    generous_bounds,
)
