"""Engines whose groups give blocks back, each by its own rule: tokens prove that no block was given back too early."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from hash_model import HashModel, attention_spec, expected_tokens, state_spec
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import IdTokenizer
from torch import Tensor
from window_specs import chunk_spec, cross_spec, latent_window_spec, rswa_spec, sink_spec, window_spec

from genericbuilders.cache import (
    NULL_BLOCK,
    BlockPool,
    GroupManager,
    KVCacheCoordinator,
    PoolStrategy,
    RequestSize,
    SinkManager,
    make_manager,
)
from genericbuilders.config import EngineConfig
from genericbuilders.engine.dummy_batch import dummy_batch
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import FinishReason, Request, RequestError, SamplingParams
from genericbuilders.engine.scheduler import Scheduler
from genericbuilders.engine.setup import EngineOptions, EngineSetup, build_engine, prepare
from genericbuilders.model import ForwardContext, LoadedModel
from genericbuilders.specs import (
    FullAttentionSpec,
    KVCacheSpec,
    RSWASpec,
    round_up,
)

MAX_TOKENS = 6
LONGEST = 25 + 10 + MAX_TOKENS - 1


SIZES = st.sampled_from([1, 2, 3, 4, 8])
SPECS: st.SearchStrategy[KVCacheSpec] = st.one_of(
    st.builds(attention_spec, SIZES),
    st.builds(window_spec, st.integers(1, 14), SIZES, st.sampled_from([0, 0, 1, 5])),
    st.builds(latent_window_spec, st.integers(1, 14), SIZES, st.booleans()),
    st.builds(chunk_spec, st.integers(1, 14), SIZES),
    st.builds(sink_spec, st.integers(1, 6), SIZES),
    st.builds(rswa_spec, st.integers(1, 6), SIZES),
    st.builds(state_spec, st.sampled_from(["none", "align", "align", "all"]), st.sampled_from([2, 4, 6])),
)


def prompts_of(seed: int, count: int, *, length_first: bool) -> list[list[int]]:
    """Prompts of up to 35 tokens with common beginnings; ``length_first`` lets each start with its length."""
    choose = random.Random(seed)
    common = [choose.randrange(97) for _ in range(25)]
    prompts = [
        common[: choose.randint(0, 25)] + [choose.randrange(97) for _ in range(choose.randint(1, 10))]
        for _ in range(count)
    ]
    return [[len(prompt), *prompt[1:]] for prompt in prompts] if length_first else prompts


def least(setup: EngineSetup, spare: int, *, shared: bool) -> EngineSetup:
    """Pools of as few blocks as the longest request needs, and ``spare`` more."""
    size = RequestSize(LONGEST - MAX_TOKENS + 1)
    needs: list[int] = []
    for group in setup.groups:
        manager = make_manager(group.kv_cache_spec, BlockPool(1000), setup.config)
        needs.append(group.kv_cache_spec.num_shared_blocks + manager.blocks_for_longest(LONGEST, size))
    groups = [
        replace(group, num_blocks=1 + max(1, need) + spare)
        for group, need in zip(setup.plan.groups, needs, strict=True)
    ]
    if not shared:
        return replace(setup, plan=replace(setup.plan, groups=tuple(groups)))
    page = round_up(max(group.page_bytes for group in groups), 64)
    together = [replace(group, num_blocks=1 + sum(needs) + spare, page_bytes=page) for group in groups]
    return replace(setup, plan=replace(setup.plan, groups=tuple(together), strategy=PoolStrategy.ONE_POOL))


def serve(
    engine: Engine,
    specs: Sequence[KVCacheSpec],
    prompts: Sequence[list[int]],
    preempt_at: frozenset[int] = frozenset(),
    max_tokens: int = MAX_TOKENS,
) -> None:
    """Serve all, taking everybody's blocks away before some steps; tokens are right, and nothing is kept."""
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), prompt, SamplingParams(max_tokens=max_tokens))
    tokens: dict[str, tuple[int, ...]] = {}
    for step in range(3000):
        if not engine.has_unfinished():
            break
        while step in preempt_at and engine.scheduler.running:
            engine.runner.release(engine.scheduler.preempt_last().request_id)
        for event in engine.step():
            if event.completion is not None:
                assert event.completion.error is None
                tokens[event.request_id] = event.completion.token_ids
    assert not engine.has_unfinished()
    for index, prompt in enumerate(prompts):
        assert list(tokens[str(index)]) == expected_tokens(specs, prompt, max_tokens)
    assert_nothing_is_held(engine)


def assert_nothing_is_held(engine: Engine) -> None:
    for pool in engine.runner.coordinator.pools:
        assert pool.num_free_blocks == pool.num_usable_blocks
        assert NULL_BLOCK not in pool.free_block_ids()


@settings(max_examples=100)
@given(
    specs=st.lists(SPECS, min_size=1, max_size=4),
    budget=st.integers(1, 40),
    max_num_seqs=st.integers(1, 6),
    pools=st.sampled_from(["planned", "least", "least and three", "shared"]),
    caching=st.booleans(),
    preempt_at=st.frozensets(st.integers(0, 30), max_size=6),
    seed=st.integers(0, 50),
)
def test_tokens_are_right_whatever_is_given_back(
    specs: list[KVCacheSpec],
    budget: int,
    max_num_seqs: int,
    pools: str,
    caching: bool,
    preempt_at: frozenset[int],
    seed: int,
) -> None:
    options = EngineOptions(
        max_num_batched_tokens=budget, max_num_seqs=max_num_seqs, max_model_len=64, enable_prefix_caching=caching
    )
    setup = prepare(LoadedModel(HashModel(specs), IdTokenizer()), options)
    if pools != "planned":
        setup = least(setup, 3 if pools == "least and three" else 0, shared=pools == "shared")
    engine = setup.start()
    prompts = prompts_of(seed, 4, length_first=any(isinstance(spec, RSWASpec) for spec in specs))
    serve(engine, specs, prompts, preempt_at)
    # The second time, prefixes are found where the groups allow it.
    serve(engine, specs, prompts, preempt_at)
    if not caching:
        assert engine.stats.num_cached_tokens == 0


MIXES: dict[str, list[KVCacheSpec]] = {
    "window": [window_spec(6), window_spec(6)],
    "full + window": [attention_spec(), window_spec(6), window_spec(9)],
    "full + chunk": [attention_spec(), chunk_spec(10)],
    "full + window + chunk + state": [attention_spec(), window_spec(6), chunk_spec(10), state_spec("align")],
    "sink + window": [sink_spec(5), window_spec(6)],
    "reference window": [rswa_spec(3), attention_spec()],
}


@pytest.mark.parametrize("mix", list(MIXES))
def test_a_request_can_be_preempted_at_every_step(mix: str) -> None:
    specs = MIXES[mix]
    setup = prepare(LoadedModel(HashModel(specs), IdTokenizer()), EngineOptions(max_num_batched_tokens=7))
    prompts = [[11, *range(50, 60)], [17, *range(50, 66)], [5, 9, 8, 7, 6]]
    for step in range(11):
        serve(least(setup, 4, shared=False).start(), specs, prompts, frozenset([step]))


@pytest.mark.parametrize(
    ("mix", "found"),
    [
        ("window", 28),
        ("full + window", 28),
        ("full + chunk", 28),
        ("full + window + chunk + state", 28),
        ("sink + window", 28),
        ("reference window", 28),
    ],
)
def test_prefixes_are_found_though_most_of_their_blocks_were_given_back(mix: str, found: int) -> None:
    engine = build_engine(
        LoadedModel(HashModel(MIXES[mix]), IdTokenizer()), EngineOptions(max_num_batched_tokens=10, max_num_seqs=6)
    )
    prompt = [30, *range(29)]
    serve(engine, MIXES[mix], [prompt])
    serve(engine, MIXES[mix], [prompt])
    assert engine.stats.num_cached_tokens == found


def test_case_25_the_full_layer_s_blocks_are_never_recycled_in_either_order() -> None:
    seen: list[dict[str, tuple[str, int]]] = []
    for specs in ([attention_spec(), rswa_spec(3)], [rswa_spec(3), attention_spec()]):
        engine = build_engine(LoadedModel(HashModel(specs), IdTokenizer()), EngineOptions(max_num_batched_tokens=8))
        prompt = [6, 1, 2, 3, 4, 5]
        engine.add_request("a", prompt, SamplingParams(max_tokens=30))
        held: dict[str, list[tuple[str, int]]] = {}
        for _ in range(25):
            engine.step()
            for group, manager in zip(engine.runner.groups, engine.runner.coordinator.managers, strict=True):
                blocks = [block for block in manager.blocks_of("a") if block != NULL_BLOCK]
                told = (type(manager).__name__, len(blocks))
                held.setdefault(type(group.kv_cache_spec).__name__, []).append(told)
        # Full: a block for every four of 30 tokens. Else two of the prompt, and of the last tokens at most two.
        assert held["FullAttentionSpec"][-1] == ("FullAttentionManager", 8)
        assert [count for _, count in held["FullAttentionSpec"]] == sorted(
            count for _, count in held["FullAttentionSpec"]
        )
        assert max(count for _, count in held["RSWASpec"]) == 4
        seen.append({kind: told[-1] for kind, told in held.items()})
        for _ in engine.stream():
            pass
        serve(engine, specs, [prompt, prompt])
    assert seen[0] == seen[1]


def test_case_26_full_and_sinks_of_two_lengths_serve_in_groups_of_their_own() -> None:
    specs = [attention_spec(), sink_spec(4), sink_spec(6), sink_spec(4)]
    engine = build_engine(LoadedModel(HashModel(specs), IdTokenizer()), EngineOptions(max_num_seqs=3))
    managers = {
        group.layer_names: manager
        for group, manager in zip(engine.runner.groups, engine.runner.coordinator.managers, strict=True)
    }
    sinks = {names: manager.sink_blocks for names, manager in managers.items() if isinstance(manager, SinkManager)}
    assert sinks == {("layers.1", "layers.3"): (1,), ("layers.2",): (1, 2)}
    for seed in range(3):
        serve(engine, specs, prompts_of(seed, 6, length_first=False))
    assert engine.runner.coordinator.reset_prefix_cache()
    serve(engine, specs, prompts_of(0, 6, length_first=False))


def test_case_27_latent_windows_keep_mode_and_alignment_and_give_blocks_back() -> None:
    spec = latent_window_spec(6)
    engine = build_engine(LoadedModel(HashModel([spec, spec]), IdTokenizer()), EngineOptions(max_num_seqs=2))
    (group,) = engine.runner.groups
    assert group.kv_cache_spec == spec
    assert engine.runner.coordinator.managers[0].pool.num_blocks == 1 + 2 * 24
    serve(engine, [spec, spec], prompts_of(1, 5, length_first=False))


def test_a_long_request_needs_few_blocks() -> None:
    specs = [window_spec(6), chunk_spec(8)]
    options = EngineOptions(max_num_batched_tokens=4, max_num_seqs=1)
    setup = prepare(LoadedModel(HashModel(specs), IdTokenizer()), options)
    assert [group.num_blocks for group in setup.plan.groups] == [1 + 3, 1 + 3]
    engine = setup.start()
    prompt = [number % 97 for number in range(80)]
    serve(engine, specs, [prompt, prompt[:50]])
    assert engine.stats.num_preemptions == 0


def test_a_step_that_fails_gives_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [window_spec(5), chunk_spec(6)]
    engine = build_engine(LoadedModel(HashModel(specs), IdTokenizer()), EngineOptions(max_num_batched_tokens=9))
    forward = engine.runner.model.forward
    prompts = prompts_of(3, 4, length_first=False)
    calls = 0

    def interrupted(input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        out = forward(input_ids, positions, context, logits_indices)
        if calls in (2, 3, 7):
            raise KeyboardInterrupt
        return out

    monkeypatch.setattr(engine.runner.model, "forward", interrupted)
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), prompt, SamplingParams(max_tokens=MAX_TOKENS))
    ended: dict[str, tuple[int, ...]] = {}
    interrupts = 0
    while engine.has_unfinished():
        try:
            events = engine.step()
        except KeyboardInterrupt:
            interrupts += 1
            continue
        for event in events:
            if event.completion is not None:
                assert event.completion.finish_reason is FinishReason.LENGTH
                ended[event.request_id] = event.completion.token_ids
    assert interrupts == 3
    assert [list(ended[str(index)]) for index in range(4)] == [
        expected_tokens(specs, prompt, MAX_TOKENS) for prompt in prompts
    ]
    assert_nothing_is_held(engine)


@dataclass
class Crossing:
    scheduler: Scheduler
    pool: BlockPool


def crossing(num_blocks: int) -> Crossing:
    """A decoder with full attention, and attention over an encoder's output of at most 12 tokens."""
    config = EngineConfig(max_model_len=64, max_num_batched_tokens=8, max_num_seqs=4)
    cross = cross_spec(max_encoder_len=12)
    pool = BlockPool(num_blocks)
    managers: list[GroupManager] = [
        make_manager(attention_spec(), BlockPool(40), config),
        make_manager(cross, pool, config),
    ]
    return Crossing(Scheduler(config, KVCacheCoordinator(managers, enable_prefix_caching=True)), pool)


def test_a_request_holds_its_encoder_s_blocks_from_start_to_end() -> None:
    made = crossing(6)
    first = Request("a", [1, 2, 3], SamplingParams(max_tokens=20), num_encoder_tokens=9)
    second = Request("b", [1, 2, 3], SamplingParams(max_tokens=20), num_encoder_tokens=12)
    text = Request("c", [1, 2, 3], SamplingParams(max_tokens=20))
    for request in (first, second, text):
        made.scheduler.add(request)
    for _ in range(18):
        for row in made.scheduler.schedule().rows:
            made.scheduler.advance(row)
            row.request.token_ids.append(7)
        # The second waits for blocks of its encoder's, in its place in the queue.
        assert [list(blocks) for blocks in made.scheduler.coordinator.blocks_of("a")][1] == [1, 2, 3]
        assert made.scheduler.running == [first]
    made.scheduler.preempt_last()
    assert made.pool.num_free_blocks == 5
    made.scheduler.schedule()
    assert len(made.scheduler.coordinator.blocks_of("a")[1]) == 3
    made.scheduler.finish("a")
    made.scheduler.schedule()
    assert made.scheduler.running == [second, text]
    assert [len(made.scheduler.coordinator.blocks_of(name)[1]) for name in "bc"] == [3, 0]
    made.scheduler.finish("b")
    made.scheduler.finish("c")
    assert made.pool.num_free_blocks == 5


def test_an_encoder_s_output_that_is_too_long_is_refused() -> None:
    made = crossing(3)
    with pytest.raises(RequestError, match=r"request 'a' cannot be served: .* gives 13 tokens; .* made for 12"):
        made.scheduler.add(Request("a", [1, 2], SamplingParams(), num_encoder_tokens=13))
    with pytest.raises(RequestError, match=r"in group 1 needs 3 blocks of 4 encoder tokens; the pool has 2"):
        made.scheduler.add(Request("a", [1, 2], SamplingParams(), num_encoder_tokens=12))
    made.scheduler.add(Request("a", [1, 2], SamplingParams(), num_encoder_tokens=8))


@pytest.mark.parametrize("mix", list(MIXES))
def test_layers_see_the_columns_as_their_managers_have_them(mix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = HashModel(MIXES[mix])
    engine = build_engine(LoadedModel(model, IdTokenizer()), EngineOptions(max_num_batched_tokens=7))
    forward = model.forward
    seen = 0

    def checked(input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        nonlocal seen
        for group, manager in zip(engine.runner.groups, engine.runner.coordinator.managers, strict=True):
            for layer in model.typed:
                if layer in group.layers:
                    (row,) = context.step[layer].block_table
                    assert row == list(manager.blocks_of("0"))
                    seen += row.count(NULL_BLOCK)
        return forward(input_ids, positions, context, logits_indices)

    monkeypatch.setattr(model, "forward", checked)
    # Long enough for columns to become null, and those of a reference window in the middle of the row.
    serve(engine, MIXES[mix], [[9, *range(8)]], max_tokens=20)
    assert seen > 0


def test_a_dummy_batch_has_the_columns_of_sinks() -> None:
    config = EngineConfig(max_model_len=64, max_num_seqs=2)
    batch = dummy_batch(config, sink_spec(5), num_reqs=2, query_len=1, device=torch.device("cpu"))
    assert batch.block_table_tensor.shape == (2, 2 + 16)


def test_promoted_layers_keep_all_blocks() -> None:
    specs: list[KVCacheSpec] = [window_spec(6), chunk_spec(5)]
    options = EngineOptions(max_num_batched_tokens=8, hybrid_kv_cache=False)
    engine = build_engine(LoadedModel(HashModel(specs), IdTokenizer()), options)
    assert all(isinstance(group.kv_cache_spec, FullAttentionSpec) for group in engine.runner.groups)
    engine.add_request("a", list(range(30)), SamplingParams(max_tokens=3))
    for _ in range(4):
        engine.step()
    assert [sum(block != NULL_BLOCK for block in row) for row in engine.runner.coordinator.blocks_of("a")] == [8, 8]
    for _ in engine.stream():
        pass
    serve(engine, specs, prompts_of(0, 4, length_first=False))
