"""The encoder's part of a step: the inputs of requests that start are read, and what each row attends over is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from genericbuilders.backends.cross import EncoderRows
from genericbuilders.config import EngineConfig
from genericbuilders.engine.input_batch import StepBuffer
from genericbuilders.engine.scheduler import ScheduledRow
from genericbuilders.request_encoder import EncoderInput, RequestEncoder

__all__ = ["NO_ENCODER_TOKENS", "EncodedBatch", "EncoderStage", "TokenPlaces"]


@dataclass(frozen=True)
class TokenPlaces:
    """Tokens that a step stores.

    Attributes:
        rows: ``[num_tokens]``: each token's row in the block tables.
        positions: ``[num_tokens]``: its place in what that row stores.
    """

    rows: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]


NO_ENCODER_TOKENS: Final = TokenPlaces(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
"""What a step of a model without an encoder stores of one."""


@dataclass(frozen=True)
class EncodedBatch:
    """What an encoder has to do with one batch.

    Attributes:
        states: ``[num_encoder_tokens, width]``: its output for the rows that start, one behind the other.
        places: where these tokens go.
        rows: what builders are told, under `ENCODER_ROWS`.
    """

    states: Tensor
    places: TokenPlaces
    rows: EncoderRows


class EncoderStage:
    """Runs a model's encoder once for each request: at the first step, or when the request is computed anew.

    Args:
        encoder: what runs.
        config: the run's settings.
        device: where the model runs.
    """

    def __init__(self, encoder: RequestEncoder, config: EngineConfig, device: torch.device) -> None:
        self.encoder = encoder
        self._lens = StepBuffer(config.max_num_seqs, torch.int32, device)
        self._starts = StepBuffer(config.max_num_seqs, torch.bool, torch.device("cpu"))

    def run(self, rows: Sequence[ScheduledRow], slots: npt.NDArray[np.int64]) -> EncodedBatch:
        """Read the inputs of the rows that start.

        Args:
            rows: the batch.
            slots: ``[num_reqs]``: each row's place in the block tables.

        Raises:
            ValueError: the encoder gives another number of tokens than it said, or a request has no input for it.
        """
        lens = np.array([row.request.num_encoder_tokens for row in rows], dtype=np.int64)
        # Nothing of such a request is in any cache; a row that is run again is encoded again.
        starts = np.array([row.request.num_computed_tokens == 0 for row in rows], dtype=np.bool_)
        states = self.encoder.encode([_input(row) for row, begins in zip(rows, starts, strict=True) if begins])
        counts = lens[starts]
        total = int(counts.sum())
        if len(states) != total:
            raise ValueError(f"the encoder gave {len(states)} tokens for requests of {total}")
        positions = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        device_lens, host_starts = self._lens.fill(lens), self._starts.fill(starts)
        told = EncoderRows(device_lens, self._lens.host[: len(rows)], host_starts)
        return EncodedBatch(states, TokenPlaces(np.repeat(slots[starts], counts), positions), told)


def _input(row: ScheduledRow) -> EncoderInput:
    given = row.request.encoder_input
    if given is None:
        raise ValueError(f"request {row.request.request_id!r} has no encoder input")
    return given
