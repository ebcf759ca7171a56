"""What builders share on the host: the way to the device, and what lengths and a block table must be."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from genericbuilders.kernels.ints import Ints
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import cdiv

__all__ = ["check_table", "computed_tokens", "send"]


def send(values: Tensor, device: torch.device) -> Tensor:
    """Host values on ``device``, without waiting for it; on a CPU the same memory."""
    return values if device.type == "cpu" else values.pin_memory().to(device, non_blocking=True)


def check_table(common: CommonAttentionMetadata, block_size: int) -> None:
    """Check that every row has a row in the block table, and the longest sequence's blocks a column each.

    Raises:
        ValueError: the block table is too small; both numbers are named.
    """
    rows, columns = common.block_table_tensor.shape
    needed = cdiv(common.max_seq_len, block_size)
    if columns < needed:
        raise ValueError(
            f"block_table has {columns} columns, and a sequence of {common.max_seq_len} tokens in blocks of "
            f"{block_size} needs {needed}"
        )
    if rows < common.num_reqs:
        raise ValueError(f"block_table has {rows} rows for {common.num_reqs} requests")


def computed_tokens(common: CommonAttentionMetadata) -> Ints:
    """``[num_reqs]``: each row's tokens computed before; rows without tokens hold anything.

    Raises:
        ValueError: a row brings more tokens than its sequence has; it is named.
    """
    computed: Ints = common.num_computed_tokens_cpu.numpy()[: common.num_reqs]
    if not len(computed) or computed.item(computed.argmin()) >= 0:
        return computed
    starts: Ints = common.query_start_loc_cpu.numpy()
    # What the buffers hold for a row without tokens is nobody's length.
    for row in np.flatnonzero((computed < 0) & (starts[1:] > starts[:-1])).tolist():
        new = int(starts[row + 1] - starts[row])
        raise ValueError(f"row {row} has {new} new tokens in a sequence of {new + int(computed[row])}")
    return computed
