"""Batches and fields by which two sides' HPC metadata is compared. Needs torch alone: a peer's environment runs it, too."""

from __future__ import annotations

from collections.abc import Sequence

from batches import Batch, make_batch
from torch import Tensor

__all__ = ["FIELDS", "hpc_batch", "hpc_fields"]

FIELDS = (
    "num_actual_tokens",
    "num_decodes",
    "num_decode_tokens",
    "num_prefills",
    "num_prefill_tokens",
    "max_query_len",
    "slot_mapping",
    "seq_lens",
    "qo_indptr",
    "decode_query_len",
    "qo_indptr_decode",
)


def hpc_batch(rows: Sequence[tuple[int, int]]) -> Batch:
    """The batch of ``rows``: new tokens, and the length of the sequence behind them."""
    return make_batch(rows)


def hpc_fields(metadata: object) -> dict[str, list[int] | int | None]:
    """What both sides have, as JSON."""
    found: dict[str, list[int] | int | None] = {}
    for name in FIELDS:
        value: object = getattr(metadata, name)
        if isinstance(value, Tensor):
            found[name] = [int(number) for number in value]
        elif isinstance(value, int) or value is None:
            found[name] = value
        else:
            raise TypeError(f"{name} is a {type(value).__name__}")
    return found
