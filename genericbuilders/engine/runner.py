"""Runs one step: batch to metadata to model to logits.

The runner never meets a bare builder class. It holds `Group`s, and does with them what is the same for every back
end; what is one back end's own it gets from that back end's adapter (see `genericbuilders.engine.stats`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from genericbuilders.adapter import Group, Layer, Step
from genericbuilders.cache import BlockTable, KVCacheCoordinator
from genericbuilders.config import EngineConfig
from genericbuilders.engine.input_batch import StepBuffer, TokenTable
from genericbuilders.engine.scheduler import ScheduledRow
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.model import ForwardContext, Model

__all__ = ["ModelRunner"]


class ModelRunner:
    """Owns the buffers of one step, and feeds batches through the model.

    Args:
        model: what runs.
        config: the run's settings.
        groups: the model's layers, each bound to its back end; in the order of the coordinator's groups.
        kv_caches: each layer's cache, allocated once.
        coordinator: knows each request's blocks.
    """

    def __init__(
        self,
        model: Model,
        config: EngineConfig,
        groups: Sequence[Group],
        kv_caches: Mapping[Layer, Tensor],
        coordinator: KVCacheCoordinator,
    ) -> None:
        self.model = model
        self.config = config
        self.groups = tuple(groups)
        self.kv_caches = kv_caches
        self.coordinator = coordinator
        self.last_step = Step()
        rows, tokens = config.max_num_seqs, config.max_num_batched_tokens
        self._tokens = TokenTable(rows, config.max_model_len)
        self._tables = [
            BlockTable(rows, -(-config.max_model_len // group.kv_cache_spec.block_size), group.kv_cache_spec.block_size)
            for group in groups
        ]
        device = model.device
        self._input_ids = StepBuffer(tokens, torch.int64, device)
        self._positions = StepBuffer(tokens, torch.int64, device)
        self._query_start_loc = StepBuffer(rows + 1, torch.int32, device)
        self._seq_lens = StepBuffer(rows, torch.int32, device)
        self._num_computed = StepBuffer(rows, torch.int32, torch.device("cpu"))
        self._logits_indices = StepBuffer(rows, torch.int64, device)
        self._slot_mappings = [StepBuffer(tokens, torch.int64, device) for _ in groups]

    @torch.inference_mode()
    def execute(self, rows: Sequence[ScheduledRow]) -> Tensor:
        """Feed ``rows`` through the model.

        Returns:
            ``[num_sampling_rows, vocab_size]``: the last token's logits of each row that samples, in order.
        """
        slots = [self._place(row) for row in rows]
        counts = np.array([row.num_tokens for row in rows], dtype=np.int64)
        starts = np.array([row.request.num_computed_tokens for row in rows], dtype=np.int64)
        token_ids, positions, row_of_token = self._tokens.gather(slots, starts, counts)
        query_start_loc = np.concatenate(([0], np.cumsum(counts)))
        seq_lens = starts + counts
        ...
