"""Runs one step: batch to metadata to model to logits.

The runner never meets a bare builder class. It holds `Group`s and does with each what is the same for every
back end; what is one back end's own is asked of that back end's adapter, as `genericbuilders.engine.stats` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from genericbuilders.adapter import Group, Layer, Step
from genericbuilders.backends.cross import ENCODER_ROWS
from genericbuilders.backends.fast_prefill import LOGITS_TOKENS, skips_tokens
from genericbuilders.cache import BlockTable, KVCacheCoordinator
from genericbuilders.cache.block_table import PADDING_SLOT
from genericbuilders.config import EngineConfig
from genericbuilders.engine.common_prefix import CommonPrefixes
from genericbuilders.engine.cudagraph import CUDAGraphMode, CUDAGraphResolution, resolve_cudagraph_mode
from genericbuilders.engine.encoder_batch import NO_ENCODER_TOKENS, EncoderStage, TokenPlaces
from genericbuilders.engine.input_batch import StepBuffer, TokenTable
from genericbuilders.engine.scheduler import ScheduledRow
from genericbuilders.engine.sharing import cache_groups
from genericbuilders.engine.stats import EngineStats, kv_bytes_read
from genericbuilders.keys import TypedMap
from genericbuilders.metadata import IS_PREFILLING, CommonAttentionMetadata
from genericbuilders.model import ForwardContext, Model

__all__ = ["ModelRunner"]


class ModelRunner:
    """Owns the buffers of one step, and feeds batches through the model.

    Args:
        model: what runs.
        config: the run's settings.
        groups: the model's layers, each bound to its back end: in the order of the coordinator's managers, and behind
            them the groups without caches of their own.
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
        self.groups: tuple[Group, ...] = tuple(groups)
        self.kv_caches = kv_caches
        self.coordinator = coordinator
        self.stats: EngineStats = EngineStats()
        self._common_prefixes = CommonPrefixes([group for group in groups if group.stored_layers], coordinator)
        self._encoder = None if model.encoder is None else EncoderStage(model.encoder, config, model.device)
        rows, tokens, device = config.max_num_seqs, config.max_num_batched_tokens, model.device
        self._tokens = TokenTable(rows, config.max_model_len)
        self._tables = [_GroupTables(group, config, device) for group in groups if group.stored_layers]
        self._cache_groups = cache_groups(groups)
        self._may_skip = any(LOGITS_TOKENS in group.adapter.needs for group in groups)
        self._input_ids = StepBuffer(tokens, torch.int64, device)
        self._positions = StepBuffer(tokens, torch.int64, device)
        self._query_start_loc = StepBuffer(rows + 1, torch.int32, device)
        self._seq_lens = StepBuffer(rows, torch.int32, device)
        self._num_computed = StepBuffer(rows, torch.int32, torch.device("cpu"))
        self._is_prefilling = StepBuffer(rows, torch.bool, torch.device("cpu"))
        self._logits_indices = StepBuffer(rows, torch.int64, device)

    @torch.inference_mode()
    def execute(self, rows: Sequence[ScheduledRow]) -> Tensor:
        """Feed ``rows`` through the model.

        Returns:
            ``[num_sampling_rows, vocab_size]``: the last token's logits of each row that samples, in order.
        """
        slots = np.array([self._place(row) for row in rows], dtype=np.int64)
        counts = np.array([row.num_tokens for row in rows], dtype=np.int64)
        starts = np.array([row.request.num_computed_tokens for row in rows], dtype=np.int64)
        token_ids, positions, slot_of_token = self._tokens.gather(slots, starts, counts)
        ends = np.cumsum(counts)
        sampling = np.array([row.samples for row in rows], dtype=np.bool_)

        encoded = None if self._encoder is None else self._encoder.run(rows, slots)
        own, given = TokenPlaces(slot_of_token, positions), NO_ENCODER_TOKENS if encoded is None else encoded.places
        longest = int((starts + counts).max())
        filled = [tables.fill(slots, given if tables.stores_encoder else own, longest) for tables in self._tables]
        common = self._describe(starts, counts, ends, *filled[0])
        if encoded is not None:
            common.inputs.put(ENCODER_ROWS, encoded.rows)
            self.stats.num_encoder_tokens += len(encoded.states)
        logits_tokens = ends[sampling] - 1
        if self._may_skip:
            common.inputs.put(LOGITS_TOKENS, torch.as_tensor(logits_tokens))
        step = Step()
        shared = self._common_prefixes.find([row.request.request_id for row in rows], int(starts.min()))
        for place, (group, index) in enumerate(zip(self.groups, self._cache_groups, strict=True)):
            # A group that only reads another's caches may run for fewer rows than share the prefix.
            group.build(common.for_group(*filled[index]), step, shared[index] if index == place else 0)
            self.stats.kv_bytes_read += kv_bytes_read(group, common, step)

        return self.model.forward(
            self._input_ids.fill(token_ids),
            self._positions.fill(positions),
            ForwardContext(
                step,
                self.kv_caches,
                None if encoded is None else encoded.states,
                skips_tokens=self._may_skip and skips_tokens(common),
            ),
            self._logits_indices.fill(logits_tokens),
        )

    @property
    def keeps_states(self) -> bool:
        """Whether a group changes states in place, so that a row must not be run twice."""
        return any(not group.kv_cache_spec.has_slots for group in self.groups)

    def resolve_cudagraph_mode(self, requested: CUDAGraphMode) -> CUDAGraphResolution:
        """The CUDA-graph mode that all groups allow: the weakest support decides, and its back end is named."""
        return resolve_cudagraph_mode(
            requested,
            [(group.adapter.name, group.cudagraph_support()) for group in self.groups],
            uniform_query_len=1 + self.config.num_speculative_tokens,
        )

    def release(self, request_id: str) -> None:
        """Forget a request that was preempted or has ended. Unknown ids are ignored."""
        slot = self._tokens.release(request_id)
        if slot is not None:
            for tables in self._tables:
                tables.block_table.clear(slot)

    def _place(self, row: ScheduledRow) -> int:
        slot = self._tokens.update(row.request)
        request_id = row.request.request_id
        for tables, manager in zip(self._tables, self.coordinator.managers, strict=True):
            tables.block_table.update(slot, manager.blocks_of(request_id), manager.num_kept_columns(request_id))
        return slot

    def _describe(
        self,
        starts: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        block_table: Tensor,
        slot_mapping: Tensor,
    ) -> CommonAttentionMetadata:
        num_reqs = len(counts)
        inputs = TypedMap()
        inputs.put(IS_PREFILLING, self._is_prefilling.fill(counts > np.minimum(starts, 1)))
        return CommonAttentionMetadata(
            query_start_loc=self._query_start_loc.fill(np.concatenate(([0], ends))),
            query_start_loc_cpu=self._query_start_loc.host[: num_reqs + 1],
            seq_lens=self._seq_lens.fill(starts + counts),
            seq_lens_cpu=self._seq_lens.host[:num_reqs],
            num_computed_tokens_cpu=self._num_computed.fill(starts),
            num_reqs=num_reqs,
            num_actual_tokens=int(ends[-1]),
            max_query_len=int(counts.max()),
            max_seq_len=int((starts + counts).max()),
            block_table_tensor=block_table,
            slot_mapping=slot_mapping,
            inputs=inputs,
        )


class _GroupTables:
    """One group's block table and slots, on the host and on the device."""

    def __init__(self, group: Group, config: EngineConfig, device: torch.device) -> None:
        self._spec = group.kv_cache_spec
        self._config = config
        # Blocks that all requests share stand in front of a request's own.
        self._num_shared = self._spec.num_shared_blocks
        columns = self._num_shared + self._spec.max_num_blocks_per_req(config, config.max_model_len)
        self.block_table = BlockTable(config.max_num_seqs, columns, self._spec.block_size)
        self.stores_encoder = self._spec.stores_encoder
        # An encoder's output comes whole, also where it is longer than a step's other tokens.
        tokens = max(config.max_num_batched_tokens, columns * self._spec.block_size if self.stores_encoder else 0)
        self.slot_mapping = StepBuffer(tokens, torch.int64, device)
        self._table = StepBuffer(config.max_num_seqs * columns, torch.int32, device)
        if not self._spec.has_slots:
            self.slot_mapping.host.fill_(PADDING_SLOT)
            self.slot_mapping.device.fill_(PADDING_SLOT)

    def fill(self, slots: npt.NDArray[np.int64], tokens: TokenPlaces, max_seq_len: int) -> tuple[Tensor, Tensor]:
        """The batch's block table, ``[num_reqs, columns in use]``, and the slots of ``tokens``, ``[num_tokens]``."""
        columns = self._num_shared + self._spec.max_num_blocks_per_req(self._config, max_seq_len)
        gathered = self.block_table.gather(slots, columns)
        table = self._table.fill(gathered.reshape(-1)).view(len(slots), columns)
        if not self._spec.has_slots:
            return table, self.slot_mapping.device[: len(tokens.positions)]
        places = tokens.positions + self._num_shared * self._spec.block_size
        return table, self.slot_mapping.fill(self.block_table.slots(tokens.rows, places))
