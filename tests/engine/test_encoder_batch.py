"""Requests with an encoder input through scheduler, runner and engine, on a model whose answers are easy to tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from attention_batches import ints
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import IdTokenizer, tiny_engine, tiny_model
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import BindError
from genericbuilders.backends.cross import CROSS
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.cache import BlockPool, KVCacheCoordinator, make_manager
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import FinishReason, Request, RequestError, SamplingParams
from genericbuilders.engine.scheduler import Scheduler
from genericbuilders.engine.setup import EngineOptions, build_engine
from genericbuilders.model import ForwardContext, LoadedModel, Model, PlacedLayer
from genericbuilders.request_encoder import EncoderFeatures, EncoderInput, EncoderTokens, RequestEncoder
from genericbuilders.specs import CrossAttentionSpec, FullAttentionSpec

HEADS = AttentionLayerConfig(num_heads=1, num_kv_heads=1, head_size=8, scale=1.0)
VOCAB_SIZE = 50
MAX_ENCODER_LEN = 12
# Token ids that make the encoder misbehave.
RAISES, GIVES_LESS, BREAKS_OFF = 41, 42, 43
PARAMS = SamplingParams(max_tokens=4)


class MeanEncoder(RequestEncoder):
    """Gives each token as a vector of its number; remembers what it was asked."""

    def __init__(self) -> None:
        self.max_tokens = MAX_ENCODER_LEN
        self.reads_text = True
        self.start_token_ids = (1, 2)
        self.calls: list[list[tuple[int, ...]]] = []

    @override
    def num_tokens(self, given: EncoderInput) -> int:
        if not isinstance(given, EncoderTokens):
            raise ValueError("it reads tokens only")
        return len(given.token_ids)

    @override
    def encode(self, given: Sequence[EncoderInput]) -> Tensor:
        rows = [each.token_ids for each in given if isinstance(each, EncoderTokens)]
        tokens = [token for row in rows for token in row]
        self.calls.append(rows)
        if RAISES in tokens:
            raise RuntimeError("the encoder met 41")
        if BREAKS_OFF in tokens and len(self.calls) == 1:
            raise KeyboardInterrupt
        states = torch.tensor(tokens, dtype=torch.float32)[:, None].repeat(1, 8)
        return states[:-1] if GIVES_LESS in tokens else states


class MeanModel(Model):
    """The next token is the mean of the encoder's tokens, plus that of the request's own, rounded down."""

    def __init__(self, block_size: int, encoder: MeanEncoder | None) -> None:
        self.vocab_size = VOCAB_SIZE
        self.max_model_len = 40
        self.eos_token_ids = frozenset[int]()
        self.dtype = torch.float32
        self.device = torch.device("cpu")
        self.own = FLASH_ATTN.layer("own", HEADS)
        self.cross = CROSS.layer("cross", replace(HEADS, causal=False))
        full = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.float32)
        cross = CrossAttentionSpec(
            block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.float32, max_encoder_len=MAX_ENCODER_LEN
        )
        self.layers = [PlacedLayer(self.own, full), PlacedLayer(self.cross, cross)]
        self.encoder = encoder

    @override
    def forward(self, input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        assert context.encoder_states is not None
        states = context.encoder_states[:, None]
        values = input_ids.float()[:, None, None].repeat(1, 1, 8)
        query, step, caches = torch.zeros(len(input_ids), 1, 8), context.step, context.kv_caches
        found = self.own.impl.forward(
            query, torch.zeros_like(values), values, kv_cache=caches[self.own], attn_metadata=step[self.own]
        )
        found = found + self.cross.impl.forward(
            query, torch.zeros_like(states), states, kv_cache=caches[self.cross], attn_metadata=step[self.cross]
        )
        tokens = (found[logits_indices, 0, 0] + 1e-3).long() % VOCAB_SIZE
        return torch.nn.functional.one_hot(tokens, VOCAB_SIZE).float()


def expected(prompt: Sequence[int], encoded: Sequence[int], count: int = 4) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(sum(tokens) / len(tokens) + sum(encoded) / len(encoded) + 1e-3) % VOCAB_SIZE)
    return tokens[len(prompt) :]


def mean_engine(options: EngineOptions | None = None) -> tuple[Engine, MeanEncoder]:
    options = options or EngineOptions(block_size=4)
    encoder = MeanEncoder()
    return build_engine(LoadedModel(MeanModel(options.block_size, encoder), IdTokenizer()), options), encoder


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            st.lists(st.integers(0, 40), min_size=1, max_size=14),
            st.lists(st.integers(0, 40), min_size=1, max_size=MAX_ENCODER_LEN),
        ),
        min_size=1,
        max_size=7,
    ),
    block_size=st.integers(1, 5),
    budget=st.integers(1, 20),
    max_num_seqs=st.integers(1, 4),
    spare=st.integers(0, 6),
)
def test_each_request_attends_over_its_own_encoder_output(
    requests: list[tuple[list[int], list[int]]], block_size: int, budget: int, max_num_seqs: int, spare: int
) -> None:
    num_blocks = 1 + -(-17 // block_size) + spare
    options = EngineOptions(
        block_size=block_size, num_blocks=num_blocks, max_num_batched_tokens=budget, max_num_seqs=max_num_seqs
    )
    engine, encoder = mean_engine(options)
    inputs = [EncoderTokens(tuple(given)) for _, given in requests]
    found = engine.generate([prompt for prompt, _ in requests], PARAMS, inputs)
    assert [list(each.token_ids) for each in found] == [expected(*each) for each in requests]
    # Once for each time that a request starts, and within a budget as large as the decoder's, but for one alone.
    assert sum(map(len, encoder.calls)) == len(requests) + engine.stats.num_preemptions
    for rows in encoder.calls:
        assert len(rows) <= 1 or sum(map(len, rows)) <= budget
    assert all(pool.num_free_blocks == pool.num_usable_blocks for pool in engine.runner.coordinator.pools)


def test_a_text_is_the_encoder_s_and_the_output_starts_as_the_model_s_do() -> None:
    engine, encoder = mean_engine()
    (found,) = engine.generate(["5 6 7"], PARAMS)
    assert encoder.calls[0] == [(5, 6, 7)]
    assert found.prompt_token_ids == (1, 2)
    assert list(found.token_ids) == expected([1, 2], [5, 6, 7])
    (found,) = engine.generate(["5 6 7"], PARAMS, [EncoderTokens((9,))])
    assert found.prompt_token_ids == (5, 6, 7)
    assert list(found.token_ids) == expected([5, 6, 7], [9])


def test_a_fault_of_the_encoder_ends_the_request_that_has_it() -> None:
    engine, _ = mean_engine()
    inputs = [(3, 4), (5, RAISES), (6, 7, 8), (GIVES_LESS, 9)]
    found = engine.generate([[1], [2], [3], [4]], PARAMS, [EncoderTokens(each) for each in inputs])
    assert [each.finish_reason is FinishReason.ERROR for each in found] == [False, True, False, True]
    assert "the encoder met 41" in str(found[1].error)
    assert "the encoder gave 1 tokens for requests of 2" in str(found[3].error)
    assert [list(found[index].token_ids) for index in (0, 2)] == [expected([1], (3, 4)), expected([3], (6, 7, 8))]


def test_a_step_that_was_broken_off_is_made_again_within_the_encoder_s_budget() -> None:
    engine, encoder = mean_engine(EngineOptions(block_size=4, max_num_batched_tokens=6))
    inputs = [(BREAKS_OFF, 4), (5, 6), (7, 8, 9), (1,)]
    for index, each in enumerate(inputs[:2]):
        engine.add_request(str(index), [index], PARAMS, EncoderTokens(each))
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    for index, each in enumerate(inputs[2:], 2):
        engine.add_request(str(index), [index], PARAMS, EncoderTokens(each))
    found = {event.request_id: event.completion for event in engine.stream() if event.completion is not None}
    tokens = [list(found[str(index)].token_ids) for index in range(4)]
    assert tokens == [expected([index], each) for index, each in enumerate(inputs)]
    assert [rows for rows in encoder.calls if rows] == [[(43, 4), (5, 6)], [(43, 4), (5, 6)], [(7, 8, 9), (1,)]]


def test_an_input_without_an_encoder_and_an_encoder_without_an_input_are_refused_by_request() -> None:
    engine, _ = mean_engine()
    engine.add_request("good", [3], PARAMS, EncoderTokens((4, 5)))
    with pytest.raises(RequestError, match="request 'bare' has no encoder input"):
        engine.add_request("bare", [1], PARAMS)
    with pytest.raises(RequestError, match="request 'none': its encoder input gives 0 tokens; it must give at least 1"):
        engine.add_request("none", [1], PARAMS, EncoderTokens(()))
    with pytest.raises(RequestError, match="request 'long' cannot be served: the request's encoder gives 13 tokens"):
        engine.add_request("long", [1], PARAMS, EncoderTokens((1,) * 13))
    with pytest.raises(RequestError, match="request 'odd': it reads tokens only"):
        engine.add_request("odd", [1], PARAMS, EncoderFeatures(torch.zeros(2, 2)))
    (found,) = [event.completion for event in engine.stream() if event.completion is not None]
    assert list(found.token_ids) == expected([3], (4, 5))
    plain = tiny_engine(tiny_model(), EngineOptions())
    with pytest.raises(RequestError, match="request 'x' has an encoder input, but the model has no encoder"):
        plain.add_request("x", [1], PARAMS, EncoderTokens((1,)))
    assert not plain.has_unfinished()


def test_a_cross_layer_of_a_model_without_an_encoder_is_refused_when_it_is_bound() -> None:
    loaded = LoadedModel(MeanModel(4, None), IdTokenizer())
    with pytest.raises(BindError, match=r"'cross' needs \['encoder_rows'\]"):
        build_engine(loaded, EngineOptions(block_size=4))


def test_what_rows_are_told_of_encoders() -> None:
    """The runner says how long each row's output is, and stores those of rows that start behind those that do not."""
    engine, _ = mean_engine(EngineOptions(block_size=2, max_num_batched_tokens=6))
    seen: list[tuple[list[int], list[int], int]] = []
    model = engine.runner.model
    assert isinstance(model, MeanModel)
    forward = model.forward

    def watched(input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        metadata = context.step[model.cross]
        assert context.encoder_states is not None
        seen.append((ints(metadata.encoder_lens), ints(metadata.slot_mapping), len(context.encoder_states)))
        return forward(input_ids, positions, context, logits_indices)

    model.forward = watched  # type: ignore[method-assign]
    engine.add_request("a", [3], PARAMS, EncoderTokens((4, 5, 6)))
    engine.step()
    engine.add_request("b", [1] * 8, PARAMS, EncoderTokens((9,)))
    engine.step()
    engine.step()
    assert [lens for lens, _, _ in seen] == [[3], [3, 1], [3, 1]]
    assert [len(slots) for _, slots, _ in seen] == [count for _, _, count in seen] == [3, 1, 0]
    assert engine.stats.num_encoder_tokens == 4


def scheduler_of(num_blocks: int = 65, budget: int = 64) -> Scheduler:
    """Without a cross group, which would turn prefix caching off by itself."""
    spec = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=torch.float32)
    coordinator = KVCacheCoordinator([make_manager(spec, BlockPool(num_blocks))], enable_prefix_caching=True)
    return Scheduler(EngineConfig(max_model_len=256, max_num_batched_tokens=budget), coordinator)


def test_a_prefix_is_found_again_by_requests_of_the_same_encoder_input_only() -> None:
    """Equal tokens behind another input have other keys and values from the second layer on."""
    scheduler = scheduler_of()
    inputs: list[EncoderInput | None] = [
        EncoderTokens((1, 2)),
        EncoderTokens((1, 3)),
        EncoderFeatures(torch.ones(2, 3)),
        EncoderFeatures(torch.zeros(2, 3)),
        None,
    ]
    for hit in (0, 12):
        for number, each in enumerate(inputs):
            request = Request(
                f"{hit}-{number}", range(13), SamplingParams(max_tokens=1), 0 if each is None else 2, each
            )
            scheduler.add(request)
            (row,) = scheduler.schedule().rows
            assert request.num_computed_tokens == hit, each
            scheduler.advance(row)
            scheduler.finish(request.request_id)


def test_encoder_inputs_of_one_step_have_a_budget_and_one_alone_may_be_longer() -> None:
    scheduler = scheduler_of(budget=10)
    lengths = {"a": 4, "b": 6, "c": 1, "d": 30, "e": 10}
    for name, count in lengths.items():
        request = Request(name, [1], SamplingParams(max_tokens=1), count, EncoderTokens((1,) * count))
        scheduler.add(request)
    steps: list[list[str]] = []
    for _ in lengths:
        rows = scheduler.schedule().rows
        steps.append([row.request.request_id for row in rows])
        for row in rows:
            scheduler.advance(row)
            scheduler.finish(row.request.request_id)
    assert [step for step in steps if step] == [["a", "b"], ["c"], ["d"], ["e"]]
