"""A model without weights whose next token depends on every token before it, through pages of caches alone.

An attention layer stores each token in its slot and reads back all that it attends over; a state layer stores a hash of
all tokens so far, and starts from the one that it finds. A page that is another request's, or older than it should be,
changes the tokens that come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import AttentionLayer, BackendAdapter
from genericbuilders.builder import AttentionImpl, AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.model import ForwardContext, Model, PlacedLayer
from genericbuilders.specs import AttentionSpec, FullAttentionSpec, KVCacheSpec, MambaSpec

__all__ = ["PAGES", "VOCAB_SIZE", "HashModel", "Rows", "attention_spec", "expected_tokens", "state_spec"]

VOCAB_SIZE = 97
MODULUS = 99_991
HEADS = AttentionLayerConfig(num_heads=1, num_kv_heads=1, head_size=8, scale=1.0)


@dataclass
class Rows:
    """The batch, and the spec of the group that it was built for."""

    spec: KVCacheSpec
    block_table: list[list[int]]
    starts: list[int]
    computed: list[int]
    seq_lens: list[int]


class RowsBuilder(AttentionMetadataBuilder[Rows]):
    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Rows:
        common = common_attn_metadata
        return Rows(
            self.kv_cache_spec,
            [[int(block) for block in row] for row in common.block_table_tensor],
            [int(start) for start in common.query_start_loc_cpu],
            [int(count) for count in common.num_computed_tokens_cpu],
            [int(length) for length in common.seq_lens_cpu],
        )


class NoImpl(AttentionImpl[Rows]):
    @override
    def forward(self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: Rows) -> Tensor:
        raise NotImplementedError("HashModel reads the pages itself")


PAGES: BackendAdapter[Rows] = BackendAdapter("pages", RowsBuilder, NoImpl)


def attention_spec(block_size: int = 4) -> FullAttentionSpec:
    """64 bytes a token: one head of 8 float32 elements for key and value."""
    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.float32)


def state_spec(mode: str = "none", block_size: int = 4, num_bytes: int = 8) -> MambaSpec:
    """A state of ``num_bytes`` bytes, of which the hash takes the first 8."""
    return MambaSpec(
        block_size=block_size,
        shapes=((num_bytes,),),
        dtypes=(torch.int8,),
        mamba_cache_mode="all" if mode == "all" else "align" if mode == "align" else "none",
    )


class HashModel(Model):
    """Layers as their specs say: states for a `MambaSpec`, attention for any other, over its window if it has one."""

    def __init__(self, specs: Sequence[KVCacheSpec], adapters: Sequence[BackendAdapter[Rows]] = (PAGES,)) -> None:
        self.vocab_size = VOCAB_SIZE
        self.max_model_len = 96
        self.eos_token_ids = frozenset[int]()
        self.dtype = torch.float32
        self.device = torch.device("cpu")
        self.typed: list[AttentionLayer[Rows]] = [
            adapters[index % len(adapters)].layer(f"layers.{index}", HEADS) for index in range(len(specs))
        ]
        self.layers = [PlacedLayer(layer, spec) for layer, spec in zip(self.typed, specs, strict=True)]

    @override
    def forward(self, input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        tokens = [int(token) for token in input_ids]
        sums = [0] * len(tokens)
        for number, layer in enumerate(self.typed):
            rows, pages = context.step[layer], context.kv_caches[layer]
            for row in range(len(rows.computed)):
                start, end = rows.starts[row], rows.starts[row + 1]
                run = _run_states if isinstance(rows.spec, MambaSpec) else _attend
                for index, value in enumerate(run(pages, rows, row, tokens[start:end]), start):
                    sums[index] += (number + 1) * value
        logits = torch.zeros(len(logits_indices), VOCAB_SIZE)
        for row, index in enumerate(logits_indices):
            logits[row, sums[int(index)] % VOCAB_SIZE] = 1.0
        return logits


def expected_tokens(specs: Sequence[KVCacheSpec], prompt: Sequence[int], count: int) -> list[int]:
    """What `HashModel` must generate, from the tokens alone."""
    tokens = list(prompt)
    for _ in range(count):
        total = 0
        for number, spec in enumerate(specs):
            window = None if isinstance(spec, MambaSpec) else _window(spec)
            seen = tokens if window is None else tokens[-window:]
            value = 0
            for token in seen:
                value = _mix(value, token)
            total += (number + 1) * value
        tokens.append(total % VOCAB_SIZE)
    return tokens[len(prompt) :]


def _window(spec: KVCacheSpec) -> int | None:
    return spec.sliding_window if isinstance(spec, FullAttentionSpec) else getattr(spec, "sliding_window", None)


def _mix(value: int, token: int) -> int:
    return (value * 31 + token + 1) % MODULUS


def _run_states(pages: Tensor, rows: Rows, row: int, tokens: Sequence[int]) -> list[int]:
    spec, table = rows.spec, rows.block_table[row]
    computed, stop = rows.computed[row], rows.seq_lens[row]
    keeps_one = isinstance(spec, MambaSpec) and spec.mamba_cache_mode == "none"
    every = isinstance(spec, MambaSpec) and spec.mamba_cache_mode == "all"
    size = spec.block_size

    def place(block: int) -> Tensor:
        assert block != 0
        return pages[block, :8].view(torch.int64)

    value = int(place(table[0 if keeps_one else (computed - 1) // size])[0]) if computed else 0
    values: list[int] = []
    for position, token in enumerate(tokens, computed):
        value = _mix(value, token)
        values.append(value)
        if position + 1 == stop or (every and (position + 1) % size == 0):
            place(table[0 if keeps_one else position // size])[0] = value
    return values


def _attend(pages: Tensor, rows: Rows, row: int, tokens: Sequence[int]) -> list[int]:
    spec, table = rows.spec, rows.block_table[row]
    size, computed = spec.block_size, rows.computed[row]
    window = _window(spec) if isinstance(spec, AttentionSpec) else None
    for position, token in enumerate(tokens, computed):
        pages[table[position // size], position % size] = token
    values: list[int] = []
    for position in range(computed, rows.seq_lens[row]):
        value = 0
        for seen in range(0 if window is None else max(0, position + 1 - window), position + 1):
            value = _mix(value, int(pages[table[seen // size], seen % size]))
        values.append(value)
    return values
