"""What builders share on the host: the way to the device, and what lengths and a block table must be."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from genericbuilders.kernels.ints import Ints
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import cdiv

__all__ = ["check_blocks", "check_lengths", "check_queries", "check_table", "computed_tokens", "send"]


def send(values: Tensor, device: torch.device) -> Tensor:
    """Host values on ``device``, without waiting for it; on a CPU the same memory."""
    return values if device.type == "cpu" else values.pin_memory().to(device, non_blocking=True)


def check_table(common: CommonAttentionMetadata, block_size: int) -> None:
    """`check_blocks` of a batch.

    Raises:
        ValueError: the block table is too small; both numbers are named.
    """
    check_blocks(common.block_table_tensor, common.num_reqs, common.max_seq_len, block_size)


def check_lengths(common: CommonAttentionMetadata) -> None:
    """Check that every row has its lengths on the host.

    Raises:
        ValueError: some are missing; both numbers are named.
    """
    count = common.num_reqs
    if (
        common.seq_lens_cpu.shape[0] < count
        or common.num_computed_tokens_cpu.shape[0] < count
        or common.query_start_loc_cpu.shape[0] <= count
    ):
        raise ValueError(
            f"there are {count} requests, but seq_lens_cpu has {len(common.seq_lens_cpu)} entries, "
            f"num_computed_tokens_cpu {len(common.num_computed_tokens_cpu)} and query_start_loc_cpu "
            f"{len(common.query_start_loc_cpu)}; each needs one a request, the last one more"
        )


def check_blocks(block_table: Tensor, num_reqs: int, max_seq_len: int, block_size: int) -> None:
    """Check that every row has a row in the block table, and the longest sequence's blocks a column each.

    Raises:
        ValueError: the block table is too small; both numbers are named.
    """
    rows, columns = block_table.shape
    needed = cdiv(max_seq_len, block_size)
    if columns < needed:
        raise ValueError(
            f"block_table has {columns} columns, and a sequence of {max_seq_len} tokens in blocks of {block_size} "
            f"needs {needed}"
        )
    if rows < num_reqs:
        raise ValueError(f"block_table has {rows} rows for {num_reqs} requests")


def computed_tokens(common: CommonAttentionMetadata) -> Ints:
    """``[num_reqs]``: each row's tokens computed before; rows without tokens hold anything.

    Raises:
        ValueError: a row brings more tokens than its sequence has; it is named. Or lengths are missing; see
            `check_lengths`.
    """
    computed: Ints = common.num_computed_tokens_cpu.numpy()[: common.num_reqs]
    if len(computed) < common.num_reqs:
        check_lengths(common)
    if not len(computed) or computed.item(computed.argmin()) >= 0:
        return computed
    starts: Ints = common.query_start_loc_cpu.numpy()[: len(computed) + 1]
    # What the buffers hold for a row without tokens is nobody's length.
    for row in np.flatnonzero((computed < 0) & (starts[1:] > starts[:-1])).tolist():
        new = int(starts[row + 1] - starts[row])
        raise ValueError(f"row {row} has {new} new tokens in a sequence of {new + int(computed[row])}")
    return computed


def check_queries(common: CommonAttentionMetadata, *, bare: bool) -> None:
    """Check that no row brings more tokens than its sequence has.

    Args:
        common: the batch.
        bare: let rows of no sequence, as dummy batches have them, bring tokens: these see nothing.

    Raises:
        ValueError: one does; it is named. Or lengths are missing; see `check_lengths`.
    """
    check_lengths(common)
    starts: Ints = common.query_start_loc_cpu.numpy()[: common.num_reqs + 1]
    lens: Ints = common.seq_lens_cpu.numpy()[: common.num_reqs]
    counts = starts[1:] - starts[:-1]
    wrong = counts > lens
    if not np.count_nonzero(wrong):
        return
    # What the buffers hold for a row without tokens is nobody's length.
    wrong &= counts > 0
    if bare:
        wrong &= lens != 0
    if np.count_nonzero(wrong):
        row = int(wrong.argmax())
        raise ValueError(f"row {row} has {counts[row]} new tokens in a sequence of {lens[row]}")
