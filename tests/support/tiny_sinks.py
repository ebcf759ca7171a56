"""A small decoder with learned sink tokens in front of every layer's keys, and its definition in plain torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from genericbuilders.backends.sink import SINK, SinkLayer
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.model import ForwardContext, Model, PlacedLayer
from genericbuilders.rotary import Rotary, apply_rotary
from genericbuilders.specs import SinkFullAttentionSpec

__all__ = ["TinySinks", "greedy_by_definition", "logits_by_definition"]

HEADS, KV_HEADS, SIZE, WIDTH, LAYERS = 4, 2, 8, 32, 2


class TinySinks(Model):
    """Two layers of grouped heads with rotary positions; random weights, 97 tokens."""

    def __init__(self, sink_len: int, block_size: int, seed: int = 0, *, with_values: bool = True) -> None:
        self.vocab_size = 97
        self.max_model_len = 128
        self.eos_token_ids = frozenset[int]()
        self.dtype = torch.float32
        self.device = torch.device("cpu")
        generator = torch.Generator().manual_seed(seed)

        def weights(*shape: int, scale: float = 0.4) -> Tensor:
            return torch.randn(shape, generator=generator) * scale

        self.embedding: Tensor = weights(self.vocab_size, WIDTH, scale=1.0)
        self.project: list[Tensor] = [weights((HEADS + 2 * KV_HEADS) * SIZE, WIDTH) for _ in range(LAYERS)]
        self.output: list[Tensor] = [weights(WIDTH, HEADS * SIZE) for _ in range(LAYERS)]
        self.sinks: list[tuple[Tensor, Tensor]] = []
        self.typed: list[SinkLayer] = []
        config = AttentionLayerConfig(HEADS, KV_HEADS, SIZE, SIZE**-0.5)
        for index in range(LAYERS):
            layer = SINK.layer(f"layers.{index}", config)
            key, value = weights(2, sink_len, KV_HEADS, SIZE, scale=1.5).unbind()
            layer.set_sinks(key, value if with_values else None)
            self.sinks.append((key, value if with_values else torch.zeros_like(value)))
            self.typed.append(layer)
        spec = SinkFullAttentionSpec(
            block_size=block_size, num_kv_heads=KV_HEADS, head_size=SIZE, dtype=self.dtype, sink_len=sink_len
        )
        self.layers = [PlacedLayer(layer, spec) for layer in self.typed]

    def heads(self, layer: int, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of ``hidden``, ``[num_tokens, heads, size]`` each."""
        joined = F.linear(F.layer_norm(hidden, (WIDTH,)), self.project[layer]).view(len(hidden), -1, SIZE)
        return joined[:, :HEADS], joined[:, HEADS : HEADS + KV_HEADS], joined[:, HEADS + KV_HEADS :]

    def close(self, layer: int, hidden: Tensor, attended: Tensor) -> Tensor:
        """The layer's result."""
        return hidden + F.linear(attended.flatten(1), self.output[layer])

    def logits(self, hidden: Tensor) -> Tensor:
        """``[num_tokens, 97]``."""
        return F.linear(F.layer_norm(hidden, (WIDTH,)), self.embedding)

    @override
    def forward(self, input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        hidden, rotary = self.embedding[input_ids], rotary_at(positions)
        for index, layer in enumerate(self.typed):
            query, key, value = self.heads(index, hidden)
            attended = layer.impl.forward_rotary(
                query,
                key,
                value,
                rotary=rotary,
                kv_cache=context.kv_caches[layer],
                attn_metadata=context.step[layer],
            )
            hidden = self.close(index, hidden, attended)
        return self.logits(hidden[logits_indices])


def rotary_at(positions: Tensor) -> Rotary:
    """Rotations of the tokens at ``positions``."""
    angle = positions[:, None] * torch.pow(100.0, -torch.arange(SIZE // 2) / (SIZE // 2))
    angle = torch.cat((angle, angle), -1)
    return Rotary(angle.cos(), angle.sin())


def logits_by_definition(model: TinySinks, tokens: Sequence[int]) -> Tensor:
    """The logits of every token, ``[num_tokens, 97]``: one pass without a cache, the sinks in front of all keys."""
    hidden, rotary = model.embedding[torch.tensor(tokens)], rotary_at(torch.arange(len(tokens)))
    for index, (sink_key, sink_value) in enumerate(model.sinks):
        query, key, value = model.heads(index, hidden)
        keys = torch.cat((sink_key, apply_rotary(key, rotary))).repeat_interleave(HEADS // KV_HEADS, 1)
        values = torch.cat((sink_value, value)).repeat_interleave(HEADS // KV_HEADS, 1)
        scores = torch.einsum("thd,shd->hts", apply_rotary(query, rotary), keys) * SIZE**-0.5
        seen = torch.ones(len(tokens), len(keys), dtype=torch.bool).tril(len(sink_key))
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        hidden = model.close(index, hidden, torch.einsum("hts,shd->thd", weights, values))
    return model.logits(hidden)


def greedy_by_definition(model: TinySinks, prompt: Sequence[int], count: int) -> list[int]:
    """The greedy continuation of ``prompt``, each token from one pass over the whole sequence."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits_by_definition(model, tokens)[-1].argmax()))
    return tokens[len(prompt) :]
