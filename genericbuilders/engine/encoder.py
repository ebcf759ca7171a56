"""Runs models that only encode: a request is one batch's, and its result are its tokens' vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.adapter import Group, Step
from genericbuilders.config import EngineConfig
from genericbuilders.engine.cudagraph import CUDAGraphMode, CUDAGraphResolution, resolve_cudagraph_mode
from genericbuilders.engine.request import unknown_token_ids
from genericbuilders.engine.setup import bind_groups
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.model import EncoderModel, Tokenizer

__all__ = ["EncoderEngine", "Pooling"]


class Pooling(StrEnum):
    """What becomes of the vectors of a request's tokens.

    ``TOKENS`` keeps them all, as token classification needs it; ``MEAN`` is their mean, ``FIRST`` the first token's.
    """

    TOKENS = "tokens"
    MEAN = "mean"
    FIRST = "first"


@dataclass(frozen=True)
class _Batch:
    """Whole requests that run together: their numbers, and their tokens."""

    indices: list[int]
    token_ids: list[Sequence[int]]


class EncoderEngine:
    """Encodes many requests in batches of whole requests.

    Args:
        model: what runs.
        tokenizer: for requests that are texts; ``None`` if all are token ids.
        max_num_batched_tokens: tokens in one batch.
        max_num_seqs: requests in one batch.

    Attributes:
        groups: the model's layers, each bound to its back end.

    Raises:
        ValueError: a limit is below 1.
        BindError: a layer's spec and back end do not belong together.
    """

    def __init__(
        self,
        model: EncoderModel,
        tokenizer: Tokenizer | None = None,
        *,
        max_num_batched_tokens: int = 4096,
        max_num_seqs: int = 256,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.config: EngineConfig = EngineConfig(
            max_model_len=model.max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            dtype=model.dtype,
            layers={placed.layer.name: placed.layer.config for placed in model.layers},
        )
        self.groups: tuple[Group, ...] = tuple(bind_groups(model, self.config))

    def encode(
        self,
        requests: Sequence[str | Sequence[int]],
        pooling: Pooling = Pooling.TOKENS,
        *,
        normalize: bool = False,
    ) -> list[Tensor]:
        """Encode requests.

        Args:
            requests: texts, or token ids.
            pooling: what becomes of the tokens' vectors.
            normalize: give each vector length one.

        Returns:
            For each request, in order, ``[num_tokens, width]``, or ``[width]`` if its tokens are pooled.

        Raises:
            ValueError: a request is empty, longer than the model or a batch takes, or has tokens that the model does
                not know; it is named by its number, and nothing is computed.
        """
        token_ids = [self._tokens(index, request) for index, request in enumerate(requests)]
        found: dict[int, Tensor] = {}
        for batch in self._batches(token_ids):
            for index, vectors in zip(batch.indices, self._run(batch), strict=True):
                pooled = _pool(vectors, pooling)
                found[index] = F.normalize(pooled, dim=-1) if normalize else pooled
        return [found[index] for index in range(len(token_ids))]

    def resolve_cudagraph_mode(self, requested: CUDAGraphMode) -> CUDAGraphResolution:
        """The CUDA-graph mode that all groups allow; layers without a cache are asked like all others."""
        supports = [(group.adapter.name, group.cudagraph_support()) for group in self.groups]
        return resolve_cudagraph_mode(requested, supports, uniform_query_len=1)

    def _tokens(self, index: int, request: str | Sequence[int]) -> Sequence[int]:
        if isinstance(request, str):
            if self.tokenizer is None:
                raise ValueError(f"request {index} is a text, but there is no tokenizer; give one, or token ids")
            request = self.tokenizer.encode(request)
        limit = min(self.config.max_model_len, self.config.max_num_batched_tokens)
        if not 1 <= len(request) <= limit:
            raise ValueError(
                f"request {index} has {len(request)} tokens; it must have 1 to {limit} (the model reaches "
                f"{self.config.max_model_len}, a batch holds {self.config.max_num_batched_tokens})"
            )
        if unknown := unknown_token_ids(request, self.model.vocab_size):
            raise ValueError(
                f"request {index} has token ids {unknown[:5]}; the model knows 0 to {self.model.vocab_size - 1}"
            )
        return request

    def _batches(self, token_ids: Sequence[Sequence[int]]) -> Iterator[_Batch]:
        """Requests of like length together, so that a batch's longest costs the others little."""
        batch, tokens = _Batch([], []), 0
        for index in sorted(range(len(token_ids)), key=lambda index: len(token_ids[index])):
            count = len(token_ids[index])
            full = tokens + count > self.config.max_num_batched_tokens or len(batch.indices) == self.config.max_num_seqs
            if batch.indices and full:
                yield batch
                batch, tokens = _Batch([], []), 0
            batch.indices.append(index)
            batch.token_ids.append(token_ids[index])
            tokens += count
        if batch.indices:
            yield batch

    @torch.inference_mode()
    def _run(self, batch: _Batch) -> Sequence[Tensor]:
        counts = np.array([len(tokens) for tokens in batch.token_ids], dtype=np.int32)
        starts = np.zeros(len(counts) + 1, dtype=np.int32)
        np.cumsum(counts, out=starts[1:])
        device = self.model.device
        lengths, query_start_loc = torch.as_tensor(counts), torch.as_tensor(starts)
        positions = np.arange(int(starts[-1])) - np.repeat(starts[:-1], counts)
        common = CommonAttentionMetadata(
            query_start_loc=query_start_loc.to(device),
            query_start_loc_cpu=query_start_loc,
            seq_lens=lengths.to(device),
            seq_lens_cpu=lengths,
            num_computed_tokens_cpu=torch.zeros_like(lengths),
            num_reqs=len(counts),
            num_actual_tokens=int(starts[-1]),
            max_query_len=int(counts.max()),
            max_seq_len=int(counts.max()),
            block_table_tensor=torch.zeros(len(counts), 0, dtype=torch.int32, device=device),
            slot_mapping=torch.full((int(starts[-1]),), -1, dtype=torch.int64, device=device),
            causal=False,
        )
        step = Step()
        for group in self.groups:
            group.build(common, step)
        input_ids = torch.tensor([token for tokens in batch.token_ids for token in tokens], device=device)
        vectors = self.model.forward(input_ids, torch.as_tensor(positions).to(device), step)
        return [vectors[first:last] for first, last in pairwise(starts)]


def _pool(vectors: Tensor, pooling: Pooling) -> Tensor:
    if pooling is Pooling.TOKENS:
        return vectors
    return vectors[0] if pooling is Pooling.FIRST else vectors.mean(0)
