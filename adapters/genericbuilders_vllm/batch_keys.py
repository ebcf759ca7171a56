"""Keys of what vLLM's builders read of a batch beyond what this library's describes.

Put a value into ``common.inputs`` under its key, and a wrapped builder finds it in vLLM's field of that name.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from torch import Tensor
from typing_extensions import TypeVar

from genericbuilders.keys import Key, TypedKey, TypedMap
from genericbuilders.metadata import IS_PREFILLING, BuildInput

__all__ = [
    "DCP_LOCAL_SEQ_LENS",
    "DCP_LOCAL_SEQ_LENS_CPU_UPPER_BOUND",
    "ENCODER_SEQ_LENS",
    "ENCODER_SEQ_LENS_CPU",
    "IS_PREFILLING",
    "LOGITS_INDICES_PADDED",
    "MAX_LOGITS_PER_REQ",
    "MM_REQ_DOC_RANGES",
    "NUM_LOGITS_INDICES",
    "POSITIONS",
    "REPLAYSSM_DECODE_BASE_CPU",
    "REQ_IDX",
    "RSWA_PREFIX_LENS",
    "BuildArgument",
    "batch_arguments",
]

T = TypeVar("T")

LOGITS_INDICES_PADDED: BuildInput[Tensor] = BuildInput("logits_indices_padded")
"""Which tokens' logits are asked for, padded."""

NUM_LOGITS_INDICES: BuildInput[int] = BuildInput("num_logits_indices")
"""How many of them are not padding."""

MAX_LOGITS_PER_REQ: BuildInput[int] = BuildInput("max_logits_per_req")
"""The most of them in one row."""

ENCODER_SEQ_LENS: BuildInput[Tensor] = BuildInput("encoder_seq_lens")
"""``[num_reqs]``: tokens of each row's encoder output."""

ENCODER_SEQ_LENS_CPU: BuildInput[npt.NDArray[np.generic]] = BuildInput("encoder_seq_lens_cpu")
"""The same on the host."""

DCP_LOCAL_SEQ_LENS: BuildInput[Tensor] = BuildInput("dcp_local_seq_lens")
"""``[num_reqs]``: tokens of each sequence on this device, where a context is spread over several."""

DCP_LOCAL_SEQ_LENS_CPU_UPPER_BOUND: BuildInput[Tensor] = BuildInput("dcp_local_seq_lens_cpu_upper_bound")
"""At least the same, on the host."""

POSITIONS: BuildInput[Tensor] = BuildInput("positions")
"""``[num_tokens]``: each token's position in its sequence."""

REQ_IDX: BuildInput[npt.NDArray[np.generic]] = BuildInput("req_idx")
"""``[num_reqs]``: each row's request in the runner's table."""

MM_REQ_DOC_RANGES: BuildInput[dict[int, list[tuple[int, int]]]] = BuildInput("mm_req_doc_ranges")
"""By row: ranges of positions that see each other both ways."""

RSWA_PREFIX_LENS: BuildInput[Tensor] = BuildInput("rswa_prefix_lens")
"""``[num_reqs]``: tokens at the front that a reference window never leaves."""

REPLAYSSM_DECODE_BASE_CPU: BuildInput[Tensor] = BuildInput("replayssm_decode_base_cpu")
"""``[num_reqs]`` on the host: computed tokens when a row's state was last written whole."""


class BuildArgument:
    """An argument that a value of ``common.inputs`` is handed over as.

    Args:
        name: the argument's.
        key: of the value.
    """

    def __init__(self, name: str, key: TypedKey[T]) -> None:
        def read(inputs: TypedMap) -> T:
            return inputs[key]

        self.name = name
        self.key: Key = key
        self.read: Callable[[TypedMap], object] = read


def batch_arguments() -> tuple[BuildArgument, ...]:
    """The fields of vLLM's description that this library's lacks, with their keys."""
    return (
        _same_name(IS_PREFILLING),
        _same_name(LOGITS_INDICES_PADDED),
        _same_name(NUM_LOGITS_INDICES),
        _same_name(MAX_LOGITS_PER_REQ),
        _same_name(ENCODER_SEQ_LENS),
        _same_name(ENCODER_SEQ_LENS_CPU),
        _same_name(DCP_LOCAL_SEQ_LENS),
        _same_name(DCP_LOCAL_SEQ_LENS_CPU_UPPER_BOUND),
        _same_name(POSITIONS),
        _same_name(REQ_IDX),
        _same_name(MM_REQ_DOC_RANGES),
        _same_name(RSWA_PREFIX_LENS),
        _same_name(REPLAYSSM_DECODE_BASE_CPU),
    )


def _same_name(key: TypedKey[T]) -> BuildArgument:
    return BuildArgument(key.name, key)
