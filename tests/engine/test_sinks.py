"""A model with sink tokens through the engine: the tokens and logits of its definition in plain torch."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import IdTokenizer
from tiny_sinks import TinySinks, greedy_by_definition, logits_by_definition
from torch import Tensor

from genericbuilders.backends.sink import SINK, MissingSinksError
from genericbuilders.config import CommonPrefixRule
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, build_engine
from genericbuilders.model import LoadedModel


def start(model: TinySinks, options: EngineOptions) -> Engine:
    return build_engine(LoadedModel(model, IdTokenizer()), options)


def generate(engine: Engine, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    ended = engine.generate([list(prompt) for prompt in prompts], SamplingParams(max_tokens=count, ignore_eos=True))
    assert not any(completion.error for completion in ended), ended
    return [list(completion.token_ids) for completion in ended]


@settings(max_examples=15)
@given(
    sink_len=st.integers(1, 9),
    block_size=st.sampled_from([1, 2, 4, 8]),
    budget=st.sampled_from([3, 8, 64]),
    with_values=st.booleans(),
    spare=st.sampled_from([None, 1]),
    seed=st.integers(0, 10**6),
)
def test_tokens_are_those_of_the_definition(
    sink_len: int, block_size: int, budget: int, with_values: bool, spare: int | None, seed: int
) -> None:
    choose = random.Random(seed)
    common = [choose.randrange(97) for _ in range(14)]
    prompts = [
        common[: choose.randint(0, 14)] + [choose.randrange(97) for _ in range(choose.randint(1, 6))] for _ in range(4)
    ]
    # One request of 14 + 6 + 6 tokens, the sinks and the null block, and hardly more.
    least = 1 + -(-sink_len // block_size) + -(-26 // block_size)
    model = TinySinks(sink_len, block_size, seed, with_values=with_values)
    engine = start(
        model,
        EngineOptions(
            block_size=block_size,
            num_blocks=None if spare is None else least + spare,
            max_num_batched_tokens=budget,
            max_model_len=32,
            common_prefix_rule=CommonPrefixRule(2, 1),
        ),
    )
    expected = [greedy_by_definition(model, prompt, 6) for prompt in prompts]
    assert generate(engine, prompts, 6) == expected
    # What is in the cache by now is found again, behind the same sinks.
    assert generate(engine, prompts, 6) == expected


@pytest.mark.parametrize("sink_len", [4, 6])
@pytest.mark.parametrize("piece", [1, 2, 3, 5, 11])
def test_logits_whatever_the_split_of_a_prompt(sink_len: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TinySinks(sink_len, 4)
    engine = start(model, EngineOptions(block_size=4, max_num_batched_tokens=piece, max_num_seqs=1))
    seen: list[Tensor] = []
    forward = model.forward

    def watching(input_ids: Tensor, positions: Tensor, context: object, logits_indices: Tensor) -> Tensor:
        del logits_indices
        seen.append(forward(input_ids, positions, context, torch.arange(len(input_ids))))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - passed on
        return seen[-1][-1:]

    monkeypatch.setattr(model, "forward", watching)
    prompt = [3, 1, 4, 15, 92, 65, 35, 89, 79, 32, 38]
    (tokens,) = generate(engine, [prompt], 4)
    torch.testing.assert_close(
        torch.cat(seen), logits_by_definition(model, [*prompt, *tokens[:-1]]), rtol=1e-4, atol=1e-4
    )


def test_a_preempted_request_finds_its_sinks_again() -> None:
    model = TinySinks(5, 4)
    engine = start(model, EngineOptions(block_size=4, num_blocks=1 + 2 + 9, max_model_len=32))
    prompts = [[5, 6, 7, 8, 9, 10], [60, 61, 62], [9, 9, 9, 9, 9]]
    assert generate(engine, prompts, 14) == [greedy_by_definition(model, prompt, 14) for prompt in prompts]
    assert engine.stats.num_preemptions


def test_a_prefix_is_found_behind_the_sinks() -> None:
    model = TinySinks(4, 4)
    engine = start(model, EngineOptions(block_size=4))
    prompt = list(range(11))
    generate(engine, [prompt], 2)
    assert generate(engine, [[*prompt[:9], 50]], 3) == [greedy_by_definition(model, [*prompt[:9], 50], 3)]
    assert engine.stats.num_cached_tokens == 8


@pytest.mark.parametrize(("sink_len", "sinks_read"), [(4, 2 * 3 * 4), (5, 3 * 5)])
def test_bytes_read_count_the_sinks(sink_len: int, sinks_read: int) -> None:
    """Those of whole blocks for each of two requests in three steps, others once a step."""
    engine = start(TinySinks(sink_len, 4), EngineOptions(block_size=4, enable_prefix_caching=False))
    generate(engine, [[1, 2, 3], [4, 5, 6]], 3)
    # Sequences of 3, 4 and 5 tokens; 2 layers, 2 key-value heads, 8 elements of key and of value.
    assert engine.stats.kv_bytes_read == (2 * (3 + 4 + 5) + sinks_read) * 2 * 2 * (8 + 8) * 4


def test_the_sinks_are_seen() -> None:
    """What the tests above would not tell: a model without its sinks writes something else."""
    first, second = TinySinks(4, 4), TinySinks(4, 4)
    second.sinks = [(key + 1, value) for key, value in second.sinks]
    assert greedy_by_definition(first, [1, 2, 3], 8) != greedy_by_definition(second, [1, 2, 3], 8)


def test_the_group_is_the_sinks_own_and_splits_nothing() -> None:
    (group,) = start(
        TinySinks(4, 4), EngineOptions(block_size=4, common_prefix_rule=CommonPrefixRule(2, 1))
    ).runner.groups
    assert SINK.owns(group)
    assert group.common_prefix_rule() is None


def test_an_engine_without_sinks_does_not_start() -> None:
    model = TinySinks(4, 4)
    spare = SINK.layer("layers.0", model.typed[0].impl.layer)
    model.layers = [type(model.layers[0])(spare, model.layers[0].kv_cache_spec), *model.layers[1:]]
    with pytest.raises(MissingSinksError, match=r"layer 'layers\.0' has no sinks.*SinkLayer\.set_sinks"):
        start(model, EngineOptions(block_size=4))


def test_sinks_of_another_number_than_the_spec_s_do_not_start() -> None:
    model = TinySinks(4, 4)
    model.typed[1].set_sinks(torch.zeros(9, 2, 8))
    with pytest.raises(ValueError, match=r"layer 'layers\.1' has 9 sinks, which take 3 blocks of 4.*keeps 1"):
        start(model, EngineOptions(block_size=4))
