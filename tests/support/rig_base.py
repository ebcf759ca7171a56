"""What every attention back end is tested with: shapes, inputs, and a cache of which only what is stored can be read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from attention_batches import ints
from torch import Tensor
from typing_extensions import TypeVar

from genericbuilders.builder import AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.kernels import reference
from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec, KVCacheSpec

__all__ = [
    "CPU",
    "MODEL_LEN",
    "TOKENS",
    "M",
    "Rig",
    "Route",
    "S",
    "Shape",
    "attend",
    "built",
    "drawn_by",
    "inputs_of",
    "rules_of",
]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)

CPU = torch.device("cpu")
MODEL_LEN = 4096
# Tokens that random inputs are drawn for: a batch's inputs are their front, padded or not.
TOKENS = 64


@dataclass(frozen=True)
class Shape:
    """What a rig is made of, beside its back end.

    Attributes:
        block_size: tokens in a block.
        dtype: of inputs and plain caches: float32 runs the compiled kernels, float64 the portable ones.
        num_heads: query heads.
        num_kv_heads: key-value heads; back ends with one vector for all heads have none.
        head_size: elements of a head.
    """

    block_size: int = 4
    dtype: torch.dtype = torch.float32
    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 16

    @property
    def scale(self) -> float:
        """Factor on the scores."""
        return 1 / math.sqrt(self.head_size)

    @property
    def heads(self) -> AttentionLayerConfig:
        """A layer of full attention."""
        return AttentionLayerConfig(self.num_heads, self.num_kv_heads, self.head_size, self.scale)

    def scored(self, *, ordered: bool) -> AttentionLayerConfig:
        """A layer with a soft cap and sinks, and with ALiBi slopes if its tokens are in order."""
        slopes = tuple(0.3 / (head + 1) for head in range(self.num_heads))
        return replace(
            self.heads,
            logits_soft_cap=1.5,
            alibi_slopes=slopes if ordered else None,
            sinks=torch.linspace(-1.0, 2.0, self.num_heads),
        )

    @property
    def full(self) -> FullAttentionSpec:
        """A plain cache of all tokens."""
        return FullAttentionSpec(
            block_size=self.block_size, num_kv_heads=self.num_kv_heads, head_size=self.head_size, dtype=self.dtype
        )


class Route(Protocol):
    """A way from a batch to its metadata."""

    def __call__(self, builder: AttentionMetadataBuilder[M, S], common: CommonAttentionMetadata) -> M:
        """The metadata of ``common``."""
        ...


def built(builder: AttentionMetadataBuilder[M, S], common: CommonAttentionMetadata) -> M:
    """The ordinary way."""
    return builder.build(0, common)


class Rig(ABC):
    """One back end over a cache of random numbers, the same for every batch of one ``clean`` batch and seed.

    What no row of ``clean`` has stored is NaN in the cache, or bytes that stand for it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        """Build and compute ``common``, over the cache of ``clean``."""

    @abstractmethod
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        """What ``clean`` must give, by definition, computed in ``dtype``."""

    def first_seen(self, position: int) -> int:
        """The first position that a token at ``position`` sees. Unless overridden: 0."""
        return 0

    def takes(self, shape: Shape) -> bool:
        """Whether the back end has layers of a shape. Unless overridden: any."""
        return True

    def pages(self, clean: CommonAttentionMetadata, shape: Shape, sizes: Sequence[int], seed: int) -> Tensor:
        """``[num_blocks, block_size, *sizes]``, NaN where no row has stored anything that it still sees."""
        num_blocks, size = 1 + max([0, *ints(clean.block_table_tensor.flatten())]), shape.block_size
        stored = torch.zeros(num_blocks, size, dtype=torch.bool)
        starts = ints(clean.query_start_loc_cpu)
        for row, length in enumerate(ints(clean.seq_lens_cpu)):
            new = starts[row + 1] - starts[row]
            for place in range(self.first_seen(length - new), length) if new else ():
                stored[int(clean.block_table_tensor[row, place // size]), place % size] = True
        drawn = drawn_by(seed + 1, num_blocks, size, *sizes).to(shape.dtype)
        return torch.where(stored.view(num_blocks, size, *[1] * len(sizes)), drawn, torch.nan)


def rules_of(heads: AttentionLayerConfig) -> Scoring:
    """What a layer does to its scores, for the oracle."""
    slopes = None if heads.alibi_slopes is None else torch.tensor(heads.alibi_slopes)
    return Scoring(heads.logits_soft_cap, slopes, heads.sliding_window, heads.sinks)


def drawn_by(seed: int, *sizes: int) -> Tensor:
    """Random normal numbers."""
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


def inputs_of(common: CommonAttentionMetadata, shape: Shape, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of every token, padding included."""
    tokens, heads, kept, size = len(common.slot_mapping), shape.num_heads, shape.num_kv_heads, shape.head_size
    query = drawn_by(seed, TOKENS, heads, size)[:tokens]
    key, value = drawn_by(seed + 7, 2, TOKENS, kept, size)[:, :tokens].unbind()
    return query.to(shape.dtype), key.to(shape.dtype), value.to(shape.dtype)


def attend(
    clean: CommonAttentionMetadata, query: Tensor, keys: Tensor, values: Tensor, scale: float, scoring: Scoring = PLAIN
) -> Tensor:
    """The oracle for paged caches, causal if the batch is."""
    return reference.paged_attention(
        query,
        keys,
        values,
        query_start_loc=clean.query_start_loc,
        seq_lens=clean.seq_lens,
        block_table=clean.block_table_tensor,
        scale=scale,
        causal=clean.causal,
        scoring=scoring,
    )
