"""A model without weights whose next token depends on every token before it, through pages of caches alone.

An attention layer stores each token in its slot and reads back, by its block table, all that it attends over; a state
layer stores a hash of all tokens so far, and starts from the one that it finds. Sinks are written once, when a layer
first runs on a cache. A page that is another request's, or older than it should be, changes the tokens that come out.
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
from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
)

__all__ = ["PAGES", "VOCAB_SIZE", "HashModel", "Rows", "attention_spec", "expected_tokens", "seen_by", "state_spec"]

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
    slots: list[int]


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
            [int(slot) for slot in common.slot_mapping],
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
    """Layers as their specs say: states for a `MambaSpec`, attention for any other, over what `seen_by` says.

    A layer of an `RSWASpec` takes a sequence's first token for the number of its prompt's tokens.
    """

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
        # By layer, the cache that its sinks were written to.
        self._sunk: dict[int, Tensor] = {}

    @override
    def forward(self, input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        tokens = [int(token) for token in input_ids]
        sums = [0] * len(tokens)
        for number, layer in enumerate(self.typed):
            rows, pages = context.step[layer], context.kv_caches[layer]
            if self._sunk.get(number) is not pages:
                self._sunk[number] = pages
                _sink(pages, rows)
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
            value = 0
            for token in [*_sinks(spec), *(tokens[at] for at in seen_by(spec, len(tokens) - 1, len(prompt)))]:
                value = _mix(value, token)
            total += (number + 1) * value
        tokens.append(total % VOCAB_SIZE)
    return tokens[len(prompt) :]


def seen_by(spec: KVCacheSpec, position: int, num_prompt_tokens: int) -> list[int]:
    """The positions that the token at ``position`` attends over, its own included; what a state stands for."""
    window, chunk = None, None
    if isinstance(spec, FullAttentionSpec):
        window, chunk = spec.sliding_window, spec.attention_chunk_size
    elif isinstance(spec, SlidingWindowSpec):
        window = spec.sliding_window
    elif isinstance(spec, ChunkedLocalAttentionSpec):
        chunk = spec.attention_chunk_size
    if isinstance(spec, RSWASpec):
        prompt = min(position + 1, num_prompt_tokens)
        return [*range(prompt), *range(max(prompt, position + 1 - spec.rswa_window), position + 1)]
    first = 0 if window is None else max(0, position + 1 - window)
    return list(range(first if chunk is None else position // chunk * chunk, position + 1))


def _sinks(spec: KVCacheSpec) -> list[int]:
    """Tokens that no vocabulary has."""
    return [VOCAB_SIZE + number for number in range(spec.sink_len)] if isinstance(spec, SinkFullAttentionSpec) else []


def _sink(pages: Tensor, rows: Rows) -> None:
    size = rows.spec.block_size
    for index, token in enumerate(_sinks(rows.spec)):
        pages[_held(rows.block_table[0][index // size]), index % size] = token


def _held(block: int) -> int:
    assert block != 0, "a column that is written or read has the null block"
    return block


def _mix(value: int, token: int) -> int:
    return (value * 31 + token + 1) % MODULUS


def _run_states(pages: Tensor, rows: Rows, row: int, tokens: Sequence[int]) -> list[int]:
    spec, table = rows.spec, rows.block_table[row]
    computed, stop = rows.computed[row], rows.seq_lens[row]
    keeps_one = isinstance(spec, MambaSpec) and spec.mamba_cache_mode == "none"
    every = isinstance(spec, MambaSpec) and spec.mamba_cache_mode == "all"
    size = spec.block_size

    def place(block: int) -> Tensor:
        return pages[_held(block), :8].view(torch.int64)

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
    size, computed, shared = spec.block_size, rows.computed[row], spec.num_shared_blocks

    def read(column: int, offset: int) -> int:
        return int(pages[_held(table[column]), offset])

    for token, slot in zip(tokens, rows.slots[rows.starts[row] :], strict=False):
        pages[_held(slot // size), slot % size] = token
    values: list[int] = []
    for position in range(computed, rows.seq_lens[row]):
        num_prompt_tokens = read(0, 0) if isinstance(spec, RSWASpec) else 0
        value = 0
        for index in range(len(_sinks(spec))):
            value = _mix(value, read(index // size, index % size))
        for seen in seen_by(spec, position, num_prompt_tokens):
            value = _mix(value, read(shared + seen // size, seen % size))
        values.append(value)
    return values
