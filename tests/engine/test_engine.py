"""The engine against transformers' own greedy tokens, on small random models, under every kind of pressure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import FAMILIES, greedy_tokens, tiny_engine, tiny_model
from torch import Tensor

from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import FinishReason, RequestError, SamplingParams
from genericbuilders.engine.sampler import Sampler
from genericbuilders.engine.setup import EngineOptions
from genericbuilders.model import ForwardContext

MAX_TOKENS = 8


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Models this small gain nothing from threads, which on a busy machine spin while they wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_prompts(seed: int, count: int, longest: int = 40) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(97) for _ in range(rng.randint(1, longest))] for _ in range(count)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "unfused"])
def test_tokens_are_those_of_transformers(family: str, fuse: bool) -> None:
    prompts = make_prompts(1, 7)
    model = tiny_model(family)
    expected = [greedy_tokens(model, prompt, MAX_TOKENS) for prompt in prompts]
    engine = tiny_engine(tiny_model(family), EngineOptions(max_num_batched_tokens=24), fuse=fuse)
    completions = engine.generate(prompts, SamplingParams(max_tokens=MAX_TOKENS))
    assert [list(completion.token_ids) for completion in completions] == expected


@settings(max_examples=25)
@given(
    block_size=st.sampled_from([1, 7, 16, 64]),
    budget=st.integers(16, 80),
    max_num_seqs=st.integers(1, 9),
    caching=st.booleans(),
    spare_blocks=st.integers(0, 6),
    seed=st.integers(0, 3),
)
def test_tokens_do_not_depend_on_how_the_batch_is_run(
    block_size: int, budget: int, max_num_seqs: int, caching: bool, spare_blocks: int, seed: int
) -> None:
    prompts = make_prompts(seed, 6)
    # Half of the prompts share a beginning, so that there are prefixes to be found.
    prompts = [prompts[0] + prompt if index % 2 else prompt for index, prompt in enumerate(prompts)]
    longest = max(len(prompt) for prompt in prompts) + MAX_TOKENS - 1
    engine = tiny_engine(
        tiny_model(),
        EngineOptions(
            block_size=block_size,
            # The null block, and just enough for one request; whatever runs beside it will be preempted.
            num_blocks=1 + -(-longest // block_size) + spare_blocks,
            max_num_batched_tokens=budget,
            max_num_seqs=max_num_seqs,
            enable_prefix_caching=caching,
        ),
    )
    completions = engine.generate(prompts, SamplingParams(max_tokens=MAX_TOKENS))
    assert [list(completion.token_ids) for completion in completions] == expected_tokens(seed)
    pool = engine.runner.coordinator.managers[0].pool
    assert pool.num_free_blocks == pool.num_usable_blocks


_EXPECTED: dict[int, list[list[int]]] = {}


def expected_tokens(seed: int) -> list[list[int]]:
    if seed not in _EXPECTED:
        prompts = make_prompts(seed, 6)
        prompts = [prompts[0] + prompt if index % 2 else prompt for index, prompt in enumerate(prompts)]
        model = tiny_model()
        _EXPECTED[seed] = [greedy_tokens(model, prompt, MAX_TOKENS) for prompt in prompts]
    return _EXPECTED[seed]


def test_a_request_can_be_preempted_at_every_step() -> None:
    prompts = make_prompts(5, 3, longest=12)
    model = tiny_model()
    expected = [greedy_tokens(model, prompt, MAX_TOKENS) for prompt in prompts]
    for step_to_preempt in range(14):
        engine = tiny_engine(tiny_model(), EngineOptions(block_size=4, max_num_batched_tokens=16, num_blocks=64))
        got = run_with(engine, prompts, step_to_preempt)
        assert got == expected, f"preempted at step {step_to_preempt}"


def run_with(engine: Engine, prompts: Sequence[Sequence[int]], step_to_preempt: int) -> list[list[int]]:
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), prompt, SamplingParams(max_tokens=MAX_TOKENS))
    done: dict[str, list[int]] = {}
    step = 0
    while engine.has_unfinished():
        if step == step_to_preempt:
            while engine.scheduler.running:
                engine.runner.release(engine.scheduler.preempt_last().request_id)
        for event in engine.step():
            if event.completion is not None:
                done[event.request_id] = list(event.completion.token_ids)
        step += 1
    return [done[str(index)] for index in range(len(prompts))]


def test_a_small_pool_does_preempt() -> None:
    engine = tiny_engine(
        tiny_model(), EngineOptions(block_size=4, num_blocks=14, max_num_batched_tokens=64, enable_prefix_caching=False)
    )
    engine.generate(make_prompts(3, 6, longest=30), SamplingParams(max_tokens=16))
    assert engine.stats.num_preemptions > 0


def test_prefixes_are_found() -> None:
    engine = tiny_engine(tiny_model(), EngineOptions(block_size=4))
    prompt = make_prompts(2, 1)[0] + [1] * 20
    first = engine.generate([prompt], SamplingParams(max_tokens=4))[0]
    second = engine.generate([prompt], SamplingParams(max_tokens=4))[0]
    assert first.token_ids == second.token_ids
    assert engine.stats.num_cached_tokens == (len(prompt) - 1) // 4 * 4


def test_seeded_draws_are_the_same_alone_and_together() -> None:
    prompts = make_prompts(4, 5)
    params = [SamplingParams(max_tokens=10, temperature=1.5, top_p=0.9, seed=index) for index in range(5)]
    together = tiny_engine(tiny_model(), EngineOptions(block_size=4, num_blocks=20, max_num_batched_tokens=16))
    for index, prompt in enumerate(prompts):
        together.add_request(str(index), prompt, params[index])
    ended = {event.request_id: event.completion for event in together.stream() if event.completion is not None}
    for index, prompt in enumerate(prompts):
        alone = tiny_engine(tiny_model(), EngineOptions()).generate([prompt], params[index])[0]
        assert ended[str(index)].token_ids == alone.token_ids


def test_events_add_up_to_the_completion() -> None:
    engine = tiny_engine(tiny_model(), EngineOptions())
    engine.add_request("a", [1, 2, 3], SamplingParams(max_tokens=6))
    events = list(engine.stream())
    completion = events[-1].completion
    assert completion is not None
    assert [event.token_id for event in events] == list(completion.token_ids)
    assert "".join(event.text for event in events) == completion.text
    assert completion.finish_reason is FinishReason.LENGTH


def test_a_stop_text_ends_and_is_cut_off() -> None:
    full = tiny_engine(tiny_model(), EngineOptions()).generate([[1, 2, 3]], SamplingParams(max_tokens=10))[0]
    third = full.token_ids[2]
    stopped = tiny_engine(tiny_model(), EngineOptions()).generate(
        [[1, 2, 3]], SamplingParams(max_tokens=10, stop=(f" {third} ",))
    )[0]
    assert stopped.finish_reason is FinishReason.STOP
    assert full.text.startswith(stopped.text)
    assert f" {third} " not in stopped.text


def test_end_of_sequence_ends_unless_ignored() -> None:
    full = tiny_engine(tiny_model(), EngineOptions()).generate([[1, 2, 3]], SamplingParams(max_tokens=10))[0]
    eos = full.token_ids[4]
    first = full.token_ids.index(eos)
    engine = tiny_engine(tiny_model(), EngineOptions())
    engine.runner.model.eos_token_ids = frozenset({eos})
    ended = engine.generate([[1, 2, 3]], SamplingParams(max_tokens=10))[0]
    assert ended.token_ids == full.token_ids[: first + 1]
    assert ended.finish_reason is FinishReason.STOP
    assert engine.generate([[1, 2, 3]], SamplingParams(max_tokens=10, ignore_eos=True))[0].token_ids == full.token_ids


def test_the_model_s_context_ends_a_request() -> None:
    engine = tiny_engine(tiny_model(), EngineOptions(max_model_len=12))
    completion = engine.generate([[5] * 7], SamplingParams(max_tokens=100))[0]
    assert len(completion.token_ids) == 5
    assert completion.finish_reason is FinishReason.LENGTH


def test_one_request_s_fault_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = make_prompts(6, 4)
    model = tiny_model()
    expected = [greedy_tokens(model, prompt, MAX_TOKENS) for prompt in prompts]
    engine = tiny_engine(tiny_model(), EngineOptions())
    forward = engine.runner.model.forward

    def faulty(input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        # Only the request that is made to fail is that long.
        if bool((input_ids == 96).any()) and bool((positions == 96).any()):
            raise RuntimeError("the kernel does not like this row")
        return forward(input_ids, positions, context, logits_indices)

    monkeypatch.setattr(engine.runner.model, "forward", faulty)
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), prompt, SamplingParams(max_tokens=MAX_TOKENS))
    engine.add_request("bad", [96] * 100, SamplingParams(max_tokens=MAX_TOKENS))
    ended = {event.request_id: event.completion for event in engine.stream() if event.completion is not None}
    assert [list(ended[str(index)].token_ids) for index in range(4)] == expected
    assert ended["bad"].finish_reason is FinishReason.ERROR
    assert ended["bad"].error == "RuntimeError: the kernel does not like this row"
    pool = engine.runner.coordinator.managers[0].pool
    assert pool.num_free_blocks == pool.num_usable_blocks


def test_logits_that_are_no_numbers_end_their_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine(tiny_model(), EngineOptions())
    forward = engine.runner.model.forward

    def poisoned(input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        logits = forward(input_ids, positions, context, logits_indices).clone()
        logits[input_ids[logits_indices] == 96] = float("nan")
        return logits

    monkeypatch.setattr(engine.runner.model, "forward", poisoned)
    good, bad = engine.generate([[1, 2], [3, 96]], SamplingParams(max_tokens=2))
    assert bad.finish_reason is FinishReason.ERROR
    assert "finite" in str(bad.error)
    assert good.finish_reason is FinishReason.LENGTH


def test_an_aborted_request_gives_back_what_it_has() -> None:
    engine = tiny_engine(tiny_model(), EngineOptions())
    engine.add_request("a", [1, 2, 3], SamplingParams(max_tokens=50))
    engine.add_request("b", [4, 5], SamplingParams(max_tokens=3))
    engine.step()
    aborted = engine.abort("a")
    assert aborted is not None
    assert len(aborted.token_ids) == 1
    assert aborted.finish_reason is FinishReason.ABORTED
    assert engine.abort("a") is None
    assert [event.request_id for event in engine.stream() if event.completion] == ["b"]


def test_what_cannot_be_served_is_refused_and_nothing_is_queued() -> None:
    engine = tiny_engine(tiny_model(), EngineOptions(block_size=4, num_blocks=5))
    params = SamplingParams(max_tokens=4)
    with pytest.raises(RequestError, match="empty prompt"):
        engine.add_request("a", [], params)
    with pytest.raises(RequestError, match=r"prompt of 256 tokens.*context is 256 tokens.*shorten it to 255"):
        engine.add_request("a", [1] * 256, params)
    with pytest.raises(RequestError, match=r"grow to 23 tokens.*needs 6 blocks of 4 tokens; the pool has 4"):
        engine.add_request("a", [1] * 20, params)
    with pytest.raises(RequestError, match=r"token ids \[97, -1\]; the model knows 0 to 96"):
        engine.add_request("a", [97, 3, -1], params)
    with pytest.raises(RequestError, match="empty prompt"):
        engine.generate([[1, 2], []], params)
    assert not engine.has_unfinished()
    engine.add_request("a", [1], params)
    with pytest.raises(RequestError, match="'a' is being served already"):
        engine.add_request("a", [1], params)


def test_half_precision_runs() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        engine = tiny_engine(tiny_model().to(dtype), EngineOptions(block_size=7))
        completions = engine.generate(make_prompts(1, 3), SamplingParams(max_tokens=4))
        assert [len(completion.token_ids) for completion in completions] == [4, 4, 4]


def test_a_failing_draw_leaves_its_neighbours_streams_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(max_tokens=6, temperature=1.5, seed=3)
    alone = tiny_engine(tiny_model(), EngineOptions()).generate([[1, 2]], params)[0]
    engine = tiny_engine(tiny_model(), EngineOptions())
    draw = Sampler._draw  # pyright: ignore[reportPrivateUsage] - the fault is injected here

    def faulty(self: Sampler, logits: Tensor, request_id: str, params: SamplingParams) -> int:
        if request_id == "bad":
            raise RuntimeError("no luck")
        return draw(self, logits, request_id, params)

    monkeypatch.setattr(Sampler, "_draw", faulty)
    engine.add_request("good", [1, 2], params)
    engine.add_request("bad", [3, 4], params)
    ended = {event.request_id: event.completion for event in engine.stream() if event.completion is not None}
    assert ended["good"].token_ids == alone.token_ids
    assert ended["bad"].error == "RuntimeError: no luck"


def test_generate_leaves_other_requests_and_failed_calls_behind_clean() -> None:
    engine = tiny_engine(tiny_model(), EngineOptions())
    engine.add_request("prompt-0", [1], SamplingParams(max_tokens=2))
    with pytest.raises(RequestError, match="1 requests are unfinished"):
        engine.generate([[1, 2]], SamplingParams())
    assert [event.request_id for event in engine.stream() if event.completion] == ["prompt-0"]
    with pytest.raises(RequestError, match="token ids"):
        engine.generate([[1, 2], [1.5]], SamplingParams())  # type: ignore[list-item]  # pyright: ignore[reportArgumentType] - ids are whole numbers
    assert not engine.has_unfinished()
