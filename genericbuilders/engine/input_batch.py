"""The persistent host side of a batch: each running request's tokens, and the buffers of one step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from genericbuilders.engine.request import Request

__all__ = ["StepBuffer", "TokenTable"]


class StepBuffer:
    """An array that is filled on the host each step and read on the device; allocated once.

    On CPU both sides are one memory. On CUDA the host side is pinned, so that the copy does not block.
    """

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.host: Tensor = torch.zeros(size, dtype=dtype, pin_memory=device.type == "cuda")
        self.device: Tensor = self.host if device.type == "cpu" else torch.zeros(size, dtype=dtype, device=device)

    def fill(self, values: npt.NDArray[np.integer | np.bool_]) -> Tensor:
        """Write ``values``; returns them on the device."""
        size = len(values)
        self.host.numpy()[:size] = values
        if self.device is self.host:
            return self.host[:size]
        return self.device[:size].copy_(self.host[:size], non_blocking=True)


class TokenTable:
    """The token ids of running requests, one slot a request, so that a batch is gathered without a loop.

    Attributes:
        token_ids: ``[max_num_seqs, max_model_len]`` int32.
    """

    def __init__(self, max_num_seqs: int, max_model_len: int) -> None:
        self.token_ids: npt.NDArray[np.int32] = np.zeros((max_num_seqs, max_model_len), dtype=np.int32)
        self._num_tokens = [0] * max_num_seqs
        self._free = list(range(max_num_seqs - 1, -1, -1))
        self._slots: dict[str, int] = {}

    def update(self, request: Request) -> int:
        """The request's slot, given to it if it has none, with its tokens brought up to date."""
        slot = self._slots.get(request.request_id)
        if slot is None:
            slot = self._slots[request.request_id] = self._free.pop()
            self._num_tokens[slot] = 0
        known, total = self._num_tokens[slot], len(request.token_ids)
        if known < total:
            self.token_ids[slot, known:total] = request.token_ids[known:]
            self._num_tokens[slot] = total
        return slot

    def release(self, request_id: str) -> int | None:
        """Give a request's slot back, if it has one; returns it."""
        slot = self._slots.pop(request_id, None)
        if slot is not None:
            self._free.append(slot)
        return slot

    def gather(
        self, slots: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The tokens ``starts .. starts + counts`` of each slot, one row behind the other.

        Returns:
            Token ids, positions and slots of the tokens, all ``[num_tokens]``.
        """
        ends = np.cumsum(counts)
        positions = np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(ends - counts - starts, counts)
        slot_of_token = np.repeat(slots, counts)
        return self.token_ids[slot_of_token, positions], positions, slot_of_token
