"""Steps made by hand on a real model: the test says which tokens of which requests run together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from genericbuilders.adapter import Group, Step
from genericbuilders.backends.fast_prefill import LOGITS_TOKENS, skips_tokens
from genericbuilders.cache import NULL_BLOCK, allocate_kv_caches, with_sharing_layers
from genericbuilders.cache.block_table import PADDING_SLOT
from genericbuilders.config import EngineConfig, StateLayerConfig
from genericbuilders.engine.setup import bind_groups
from genericbuilders.engine.sharing import cache_groups
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.model import ForwardContext
from genericbuilders_transformers.model import TransformersModel

__all__ = ["HandFed"]

# What stands in the request buffers behind the last real row.
STALE = 9
GARBAGE = 0x7F


class HandFed:
    """A model whose steps a test makes.

    Each request has blocks of its own in every group, in a random order. States start as garbage (numbers of 3e38), in
    the null block too, so that reading one that was not stored shows.

    Args:
        model: what runs.
        num_requests: requests that may be fed, numbered from 0.
        block_size: tokens in one cache block, as in the model's specs.
        max_len: tokens in one request.
    """

    def __init__(self, model: TransformersModel, num_requests: int, block_size: int = 4, max_len: int = 64) -> None:
        self.model = model
        self.config = EngineConfig(
            max_model_len=max_len,
            max_num_seqs=num_requests + 8,
            max_num_batched_tokens=num_requests * max_len,
            block_size=block_size,
            layers={placed.layer.name: placed.layer.config for placed in model.layers},
        )
        self.groups: list[Group] = bind_groups(model, self.config, (LOGITS_TOKENS,))
        storing = [group for group in self.groups if group.stored_layers]
        generator = torch.Generator().manual_seed(0)
        self.tables: list[Tensor] = []
        for group in storing:
            columns = group.kv_cache_spec.max_num_blocks_per_req(self.config, max_len)
            blocks = 1 + torch.randperm(num_requests * columns, generator=generator, dtype=torch.int32)
            self.tables.append(blocks.view(num_requests, columns))
        counts = [1 + table.numel() for table in self.tables]
        self.kv_caches = with_sharing_layers(allocate_kv_caches(storing, counts, model.device), self.groups)
        for group in storing:
            if not group.kv_cache_spec.has_slots:
                for layer in group.layers:
                    self.kv_caches[layer].fill_(GARBAGE)
        self.computed = [0] * num_requests

    @torch.inference_mode()
    def step(
        self, pieces: Mapping[int, Sequence[int]], padding: int = 0, wanted: Mapping[int, int] | None = None
    ) -> dict[int, Tensor]:
        """Feed each request its next tokens, all in one batch.

        Args:
            pieces: the tokens by request.
            padding: rows and tokens to add behind them.
            wanted: of how many of a request's last tokens logits are wanted; ``None`` for all of all requests.

        Returns:
            ``[num_wanted, vocab_size]`` by request.
        """
        order = sorted(pieces, key=lambda request: not (len(pieces[request]) == 1 and self.computed[request] > 0))
        lens = [len(pieces[request]) for request in order]
        tokens = [token for request in order for token in pieces[request]]
        positions = [self.computed[request] + place for request in order for place in range(len(pieces[request]))]
        kept = lens if wanted is None else [wanted[request] for request in order]
        logits_tokens = torch.tensor(
            [place for end, count in zip(accumulate(lens), kept, strict=True) for place in range(end - count, end)],
            dtype=torch.int64,
        )
        step = Step()
        skips = False
        for group, index in zip(self.groups, cache_groups(self.groups), strict=True):
            common = self._describe(order, lens, padding, group, self.tables[index])
            common.inputs.put(LOGITS_TOKENS, logits_tokens)
            skips = LOGITS_TOKENS in group.adapter.needs and skips_tokens(common)
            group.build(common, step)
        logits = self.model.forward(
            torch.tensor(tokens + [0] * padding),
            torch.tensor(positions + [STALE] * padding),
            ForwardContext(step, self.kv_caches, skips_tokens=skips),
            logits_tokens,
        )
        for request, count in zip(order, lens, strict=True):
            self.computed[request] += count
        return dict(zip(order, torch.split(logits, kept), strict=True))

    def states(self, request: int) -> dict[str, Tensor]:
        """The request's state tensors, by layer and number."""
        return self._states({group: int(table[request, 0]) for group, table in self._state_tables()})

    def null_states(self) -> dict[str, Tensor]:
        """What stands in the null block."""
        return self._states({group: NULL_BLOCK for group, _ in self._state_tables()})

    def _state_tables(self) -> list[tuple[Group, Tensor]]:
        pairs = zip(self.groups, self.tables, strict=False)
        return [(group, table) for group, table in pairs if not group.kv_cache_spec.has_slots]

    def _states(self, blocks: Mapping[Group, int]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for group, block in blocks.items():
            for layer in group.layers:
                assert isinstance(layer.config, StateLayerConfig)
                page, start = self.kv_caches[layer][block], 0
                for index, (shape, dtype) in enumerate(zip(layer.config.shapes, layer.config.dtypes, strict=True)):
                    size = math.prod(shape) * dtype.itemsize
                    found[f"{layer.name}[{index}]"] = page[start : start + size].clone().view(dtype).view(shape)
                    start += size
        return found

    def _describe(
        self, order: Sequence[int], lens: Sequence[int], padding: int, group: Group, table: Tensor
    ) -> CommonAttentionMetadata:
        computed = [self.computed[request] for request in order]
        starts = torch.tensor([0, *lens] + [0] * padding, dtype=torch.int32).cumsum(0, dtype=torch.int32)
        ends = [before + count for before, count in zip(computed, lens, strict=True)]
        seq_lens = torch.tensor(ends + [STALE] * padding, dtype=torch.int32)
        rows = torch.full((len(order) + padding, table.shape[1]), NULL_BLOCK, dtype=torch.int32)
        rows[: len(order)] = table[list(order)]
        slots = torch.full((sum(lens) + padding,), PADDING_SLOT, dtype=torch.int64)
        if group.kv_cache_spec.has_slots:
            size = group.kv_cache_spec.block_size
            places = [(row, place) for row in range(len(order)) for place in range(computed[row], ends[row])]
            slots[: sum(lens)] = torch.tensor([int(rows[row, at // size]) * size + at % size for row, at in places])
        return CommonAttentionMetadata(
            query_start_loc=starts,
            query_start_loc_cpu=starts,
            seq_lens=seq_lens,
            seq_lens_cpu=seq_lens,
            num_computed_tokens_cpu=torch.tensor(computed + [STALE] * padding, dtype=torch.int32),
            num_reqs=len(order) + padding,
            num_actual_tokens=sum(lens),
            max_query_len=max(lens),
            max_seq_len=max(ends),
            block_table_tensor=rows,
            slot_mapping=slots,
        )
