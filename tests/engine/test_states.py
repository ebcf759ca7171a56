"""Requests whose states move on in place: faults, preemption, waiting for a state, and memory."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import pytest
import torch
from tiny_hybrids import tiny_hybrid
from tiny_models import greedy_tokens, tiny_engine
from torch import Tensor

from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import Completion, FinishReason, SamplingParams
from genericbuilders.engine.setup import EngineOptions
from genericbuilders.model import ForwardContext
from genericbuilders.specs import MambaCacheMode, MambaSpec

PROMPTS = ([5, 6, 7, 8, 9, 10, 11], [12, 13, 14], [15], [16, 17, 18, 19, 20])
OPTIONS = EngineOptions(block_size=4, max_num_batched_tokens=8, max_num_seqs=4)


def served(engine: Engine, prompts: list[list[int]], max_tokens: int = 6) -> dict[str, Completion]:
    for index, prompt in enumerate(prompts):
        engine.add_request(f"r{index}", prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=True))
    return {event.request_id: event.completion for event in engine.stream() if event.completion is not None}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("family", ["bamba", "qwen3_next"])
def test_one_request_s_fault_leaves_the_states_of_the_others_right(
    family: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [greedy_tokens(tiny_hybrid(family), prompt, 6) for prompt in PROMPTS]
    engine = tiny_engine(tiny_hybrid(family), OPTIONS)
    forward = engine.runner.model.forward
    # The second token that the second request generates.
    poison = expected[1][1]

    def faulty(input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        wrong = bool(((input_ids == poison) & (positions == len(PROMPTS[1]) + 1)).any())
        if wrong and when == "before":
            raise RuntimeError("poison")
        out = forward(input_ids, positions, context, logits_indices)
        if wrong:
            raise RuntimeError("poison")
        return out

    monkeypatch.setattr(engine.runner.model, "forward", faulty)
    completions = served(engine, [list(prompt) for prompt in PROMPTS])
    for index, tokens in enumerate(expected):
        completion = completions[f"r{index}"]
        if completion.finish_reason is FinishReason.ERROR:
            assert completion.error == "RuntimeError: poison"
            assert list(completion.token_ids) == tokens[: len(completion.token_ids)]
        else:
            assert list(completion.token_ids) == tokens, f"request {index}"
    assert completions["r1"].finish_reason is FinishReason.ERROR
    assert_nothing_is_held(engine)


@pytest.mark.parametrize("family", ["bamba", "lfm2"])
def test_a_step_that_was_interrupted_can_be_followed_by_others(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [greedy_tokens(tiny_hybrid(family), prompt, 6) for prompt in PROMPTS]
    engine = tiny_engine(tiny_hybrid(family), OPTIONS)
    forward = engine.runner.model.forward
    calls: list[int] = []

    def interrupted(input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        out = forward(input_ids, positions, context, logits_indices)
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return out

    monkeypatch.setattr(engine.runner.model, "forward", interrupted)
    for index, prompt in enumerate(PROMPTS):
        engine.add_request(f"r{index}", list(prompt), SamplingParams(max_tokens=6, ignore_eos=True))
    ended: dict[str, Completion] = {}
    while engine.has_unfinished():
        try:
            ended |= {event.request_id: event.completion for event in engine.step() if event.completion is not None}
        except KeyboardInterrupt:
            assert len(calls) == 3
    assert [list(ended[f"r{index}"].token_ids) for index in range(len(PROMPTS))] == expected
    assert_nothing_is_held(engine)


def test_a_token_that_cannot_be_decoded_ends_its_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [greedy_tokens(tiny_hybrid("bamba"), prompt, 6) for prompt in PROMPTS]
    engine = tiny_engine(tiny_hybrid("bamba"), OPTIONS)
    decode = engine.tokenizer.decode

    def faulty(token_ids: Sequence[int]) -> str:
        if list(token_ids)[-1:] == expected[1][1:2] and list(token_ids)[:1] == expected[1][:1]:
            raise ValueError("no text")
        return decode(token_ids)

    monkeypatch.setattr(engine.tokenizer, "decode", faulty)
    ended = served(engine, [list(prompt) for prompt in PROMPTS])
    assert ended["r1"].finish_reason is FinishReason.ERROR
    for index in (0, 2, 3):
        assert list(ended[f"r{index}"].token_ids) == expected[index]


@pytest.mark.parametrize("family", ["mamba2", "bamba", "lfm2"])
@pytest.mark.parametrize("mode", ["align", "all"])
def test_requests_share_the_states_at_block_ends(family: str, mode: MambaCacheMode) -> None:
    shared = [7 + index % 40 for index in range(19)]
    prompts = [[*shared, 50 + index, 60] for index in range(3)]
    model = tiny_hybrid(family)
    expected = [greedy_tokens(model, prompt, 6) for prompt in prompts]
    options = EngineOptions(block_size=4, max_num_batched_tokens=16, max_num_seqs=2)
    engine = tiny_engine(tiny_hybrid(family), options, mamba_cache_mode=mode, mamba_block_size=8)
    for round_index in range(2):
        ended = served(engine, prompts)
        assert [list(ended[f"r{index}"].token_ids) for index in range(3)] == expected
        # Of 19 common tokens, 16 are whole blocks of states.
        assert engine.stats.num_cached_tokens >= 16 * (1 + 2 * round_index)
    assert_nothing_is_held(engine)


def test_without_block_ends_nothing_is_shared() -> None:
    engine = tiny_engine(tiny_hybrid("bamba"), OPTIONS)
    for _ in range(2):
        served(engine, [[5] * 17])
    assert engine.stats.num_cached_tokens == 0


@pytest.mark.parametrize("mode", ["none", "align", "all"])
def test_preempted_requests_come_back_to_the_same_tokens(mode: MambaCacheMode) -> None:
    prompts = [[5 + index, 6, 7, 8, 9, 10, 11, 12 + index] for index in range(6)]
    model = tiny_hybrid("bamba")
    expected = [greedy_tokens(model, prompt, 20) for prompt in prompts]
    options = EngineOptions(block_size=4, max_num_batched_tokens=16, max_num_seqs=4, num_blocks=14, max_model_len=32)
    engine = tiny_engine(tiny_hybrid("bamba"), options, mamba_cache_mode=mode)
    ended = served(engine, prompts, max_tokens=20)
    assert [list(ended[f"r{index}"].token_ids) for index in range(6)] == expected
    assert engine.stats.num_preemptions > 0
    assert_nothing_is_held(engine)


@pytest.mark.parametrize("family", ["mamba2", "lfm2"])
def test_5000_requests_through_32_states_leak_nothing(family: str) -> None:
    """They come by the thousand at once, so that those without a state wait."""
    hf = tiny_hybrid(family)
    prompts = [[5 + number, *range(number % 3)] for number in range(40)]
    expected = [greedy_tokens(hf, prompt, 2) for prompt in prompts]
    options = EngineOptions(block_size=4, max_num_batched_tokens=64, max_num_seqs=32, max_model_len=8)
    engine = tiny_engine(tiny_hybrid(family), options)
    caches = {layer.name: cache for layer, cache in engine.runner.kv_caches.items()}
    kept = {name: (cache.data_ptr(), cache.untyped_storage().nbytes()) for name, cache in caches.items()}
    for group in engine.runner.groups:
        if isinstance(spec := group.kv_cache_spec, MambaSpec):
            sizes = [torch.Size(shape).numel() for shape in spec.shapes]
            state_bytes = sum(size * dtype.itemsize for size, dtype in zip(sizes, spec.dtypes, strict=True))
            # One a request and the null one, and nothing else but what aligns them.
            assert all(0 <= kept[layer.name][1] - 33 * state_bytes <= 64 for layer in group.layers)
    objects: list[int] = []
    for wave in (range(1000), range(1000, 5000)):
        for number in wave:
            params = SamplingParams(max_tokens=2, ignore_eos=True)
            engine.add_request(f"r{number}", list(prompts[number % len(prompts)]), params)
        ended: dict[str, Completion] = {}
        most = 0
        while engine.has_unfinished():
            ended |= {event.request_id: event.completion for event in engine.step() if event.completion is not None}
            most = max(most, len(engine.scheduler.running))
        assert most == 32
        assert {int(name[1:]): list(each.token_ids) for name, each in ended.items()} == {
            number: expected[number % len(prompts)] for number in wave
        }
        assert_nothing_is_held(engine)
        ended.clear()
        gc.collect()
        objects.append(len(gc.get_objects()))
    assert objects[1] - objects[0] < 400
    assert {name: (cache.data_ptr(), cache.untyped_storage().nbytes()) for name, cache in caches.items()} == kept


def assert_nothing_is_held(engine: Engine) -> None:
    for manager in engine.scheduler.coordinator.managers:
        assert manager.pool.num_free_blocks == manager.pool.num_usable_blocks
