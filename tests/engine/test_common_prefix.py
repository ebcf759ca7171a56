"""The engine's own common prefix: split off where all rows share it, with the tokens and logits of attending for each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_attention import tiny_attention
from tiny_hybrids import tiny_hybrid
from tiny_models import greedy_tokens, tiny_engine, tiny_model
from torch import Tensor
from transformers import PreTrainedModel

from genericbuilders.adapter import Step
from genericbuilders.cache import BlockPool, KVCacheCoordinator, make_manager
from genericbuilders.config import CommonPrefixRule, EngineConfig
from genericbuilders.engine.common_prefix import CommonPrefixes
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.scheduler import ScheduledRow
from genericbuilders.engine.setup import EngineOptions
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec

BLOCK = 4
OPTIONS = EngineOptions(block_size=BLOCK)
ALWAYS, NEVER = CommonPrefixRule(2, BLOCK), CommonPrefixRule.never()
SYSTEM = [(7 * index * index + 3) % 97 for index in range(22)]


@dataclass
class Watched:
    """An engine that notes, for each step and group, the prefix that was split off, and each step's logits."""

    engine: Engine
    shared: list[list[int]] = field(default_factory=list[list[int]])
    logits: list[Tensor] = field(default_factory=list[Tensor])
    tokens: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def add(self, request_id: str, prompt: Sequence[int], max_tokens: int = 4) -> None:
        self.engine.add_request(request_id, list(prompt), SamplingParams(max_tokens=max_tokens, ignore_eos=True))

    def step(self) -> None:
        for event in self.engine.step():
            assert event.token_id is not None, event
            self.tokens.setdefault(event.request_id, []).append(event.token_id)

    def run(self) -> None:
        while self.engine.has_unfinished():
            self.step()


def watch(
    rule: CommonPrefixRule | None = ALWAYS,
    model: Callable[[], PreTrainedModel] = tiny_model,
    options: EngineOptions = OPTIONS,
) -> Watched:
    watched = Watched(tiny_engine(model(), replace(options, common_prefix_rule=rule)))
    runner = watched.engine.runner
    execute = runner.execute

    def executing(rows: Sequence[ScheduledRow]) -> Tensor:
        watched.shared.append([])
        logits = execute(rows)
        watched.logits.append(logits.clone())
        return logits

    runner.execute = executing  # type: ignore[method-assign]  # to watch it
    for group in runner.groups:

        def building(
            common: CommonAttentionMetadata,
            step: Step,
            common_prefix_len: int = 0,
            *,
            build: Callable[[CommonAttentionMetadata, Step, int], None] = group.build,
        ) -> None:
            watched.shared[-1].append(common_prefix_len)
            if common_prefix_len:
                assert common_prefix_len % BLOCK == 0
                assert common_prefix_len <= int(common.num_computed_tokens_cpu.min())
                front = common.block_table_tensor[:, : common_prefix_len // BLOCK]
                assert front.eq(front[0]).all()
                assert front.all(), "the null block is no prefix"
            build(common, step, common_prefix_len)

        group.build = building  # type: ignore[method-assign]  # to watch it
    return watched


def after_first(watched: Watched, others: Sequence[Sequence[int]], max_tokens: int = 4) -> None:
    """``SYSTEM`` and a token alone, whose blocks the others then find."""
    watched.add("first", [*SYSTEM, 1], max_tokens)
    watched.step()
    for index, prompt in enumerate(others):
        watched.add(str(index), prompt, max_tokens)


def test_a_system_prompt_is_split_off() -> None:
    prompts = [[*SYSTEM, 2, 3], [*SYSTEM, 4], [*SYSTEM[:21], 5, 6, 7, 8, 9]]
    watched = watch()
    after_first(watched, prompts)
    watched.run()
    # 22 shared tokens are 5 whole blocks. One row is alone in the first step and in no later one but the last.
    assert [shared for (shared,) in watched.shared] == [0, 20, 20, 20, 20]
    model = tiny_model()
    assert watched.tokens["first"] == greedy_tokens(model, [*SYSTEM, 1], 4)
    for index, prompt in enumerate(prompts):
        assert watched.tokens[str(index)] == greedy_tokens(model, prompt, 4)


def test_what_is_read_once_counts_once() -> None:
    read: list[int] = []
    for rule in (ALWAYS, NEVER):
        watched = watch(rule)
        after_first(watched, [[*SYSTEM, 2]], max_tokens=3)
        watched.run()
        read.append(watched.engine.stats.kv_bytes_read)
    # Two steps of two rows: 20 tokens less, in 2 layers, 2 key-value heads, 8 elements of key and value, 4 bytes.
    assert read[1] - read[0] == 2 * 20 * 2 * 2 * (8 + 8) * 4


def test_one_row_that_shares_nothing_stops_it_for_as_long_as_it_is_there() -> None:
    watched = watch()
    after_first(watched, [[*SYSTEM, 2]], max_tokens=7)
    watched.step()
    watched.add("other", [90, 91, 92, 93, 94, 95, 96, 90, 91], max_tokens=2)
    watched.run()
    assert [shared for (shared,) in watched.shared] == [0, 20, 0, 0, 20, 20, 20, 0]
    model = tiny_model()
    assert watched.tokens["other"] == greedy_tokens(model, [90, 91, 92, 93, 94, 95, 96, 90, 91], 2)
    assert watched.tokens["0"] == greedy_tokens(model, [*SYSTEM, 2], 7)


def test_a_row_that_leaves_makes_the_prefix_longer() -> None:
    watched = watch()
    after_first(watched, [[*SYSTEM[:9], 2], [*SYSTEM, 3]], max_tokens=9)
    watched.step()
    watched.step()
    watched.engine.abort("0")
    watched.step()
    assert [shared for (shared,) in watched.shared] == [0, 8, 8, 20]


def test_late_requests_share_what_they_found() -> None:
    watched = watch()
    after_first(watched, [[*SYSTEM, 2]], max_tokens=12)
    watched.step()
    watched.add("late", [*SYSTEM, 3, 4, 5, 6, 7, 8, 9], max_tokens=3)
    watched.add("whole", SYSTEM[:20], max_tokens=3)
    watched.step()
    # A hit leaves at least one token: the prompt of 20 found 16.
    assert [shared for (shared,) in watched.shared] == [0, 20, 16]
    watched.run()
    model = tiny_model()
    assert watched.tokens["late"] == greedy_tokens(model, [*SYSTEM, 3, 4, 5, 6, 7, 8, 9], 3)
    assert watched.tokens["whole"] == greedy_tokens(model, SYSTEM[:20], 3)
    assert watched.tokens["first"] == greedy_tokens(model, [*SYSTEM, 1], 12)


def test_equal_prompts_at_once_have_blocks_of_their_own() -> None:
    watched = watch()
    for request_id in ("a", "b"):
        watched.add(request_id, [*SYSTEM, 1], 3)
    watched.run()
    assert [shared for (shared,) in watched.shared] == [0, 0, 0]
    assert watched.tokens["a"] == watched.tokens["b"] == greedy_tokens(tiny_model(), [*SYSTEM, 1], 3)


def test_an_evicted_prefix_is_computed_anew_and_shared_again() -> None:
    watched = watch(options=EngineOptions(block_size=BLOCK, num_blocks=1 + 13, max_model_len=54))
    after_first(watched, [[*SYSTEM, 2]], max_tokens=3)
    watched.run()
    first = dict(watched.tokens)
    watched.add("large", list(range(50)), 3)  # takes all blocks
    watched.run()
    watched.tokens.clear()
    watched.shared.clear()
    after_first(watched, [[*SYSTEM, 2]], max_tokens=3)
    watched.run()
    assert watched.engine.stats.num_cached_tokens == 2 * 20
    assert [shared for (shared,) in watched.shared] == [0, 20, 20, 0]
    assert watched.tokens == first


def test_preempted_requests_share_again() -> None:
    options = EngineOptions(block_size=BLOCK, num_blocks=1 + 13, max_model_len=48)
    answers: list[dict[str, list[int]]] = []
    for rule in (ALWAYS, NEVER):
        watched = watch(rule, options=options)
        after_first(watched, [[*SYSTEM, 2], [*SYSTEM, 3]], max_tokens=20)
        watched.run()
        assert watched.engine.stats.num_preemptions
        assert any(shared for (shared,) in watched.shared) == (rule is ALWAYS)
        answers.append(watched.tokens)
    assert answers[0] == answers[1]


def test_without_prefix_caching_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(options=EngineOptions(block_size=BLOCK, enable_prefix_caching=False))
    (manager,) = watched.engine.runner.coordinator.managers

    def looked(request_ids: Sequence[str]) -> int:
        raise AssertionError(f"nobody can share, but {request_ids} were looked at")

    monkeypatch.setattr(manager, "num_common_prefix_blocks", looked)
    after_first(watched, [[*SYSTEM, 2]])
    watched.run()
    assert not any(shared for (shared,) in watched.shared)


def test_the_rule_of_cpus_is_in_force_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = [index % 97 for index in range(1040)]

    model = tiny_model()
    monkeypatch.setattr(model.config, "max_position_embeddings", 1100)
    watched = Watched(tiny_engine(model, EngineOptions(block_size=16, max_num_batched_tokens=1100)))
    (group,) = watched.engine.runner.groups
    (manager,) = watched.engine.runner.coordinator.managers
    finder = CommonPrefixes([group], watched.engine.runner.coordinator)
    watched.add("0", prompt, 60)
    watched.step()
    for index in range(1, 16):
        watched.add(str(index), prompt, 60)
    watched.step()
    ids = [str(index) for index in range(16)]
    assert manager.num_common_prefix_blocks(ids) == 64
    assert finder.find(ids, 1039) == [1024]
    assert finder.find(ids[:15], 1039) == [0]
    assert finder.find(ids, 1023) == [0]


def test_no_row_s_new_tokens_lie_in_the_prefix() -> None:
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=8, dtype=torch.float32)
    manager = make_manager(spec, BlockPool(30), EngineConfig(max_model_len=100))
    coordinator = KVCacheCoordinator([manager], enable_prefix_caching=True)
    tokens = list(range(30))
    coordinator.start("a", tokens, 30)
    coordinator.cache_blocks("a", tokens, 30)
    assert coordinator.start("b", tokens, 30) == 28
    (group,) = watch().engine.runner.groups
    finder = CommonPrefixes([group], coordinator)
    assert [finder.find(["a", "b"], computed) for computed in (28, 27, 9, 4, 3, 0)] == [[28], [24], [8], [4], [0], [0]]
    assert finder.find(["a"], 28) == [0]


@pytest.mark.parametrize(
    ("family", "make", "splits"),
    [
        ("gemma2", tiny_attention, [False, True]),  # a window; a soft cap over all tokens
        ("gpt_oss", tiny_attention, [False, False]),  # sinks
        ("llama4", tiny_attention, [False, True]),  # chunks
        ("deepseek_v3", tiny_attention, [False]),
        ("jamba", tiny_hybrid, [False, True]),  # states
    ],
)
def test_only_groups_that_can_split_are_asked(
    family: str, make: Callable[[str], PreTrainedModel], splits: list[bool]
) -> None:
    answers: list[dict[str, list[int]]] = []
    for rule in (ALWAYS, NEVER):
        watched = watch(rule, lambda: make(family))
        groups = watched.engine.runner.groups
        assert [group.common_prefix_rule() is not None for group in groups] == splits
        after_first(watched, [[*SYSTEM, 2], [*SYSTEM, 3, 4]], max_tokens=6)
        watched.run()
        caching = watched.engine.runner.coordinator.enable_prefix_caching
        for shared in watched.shared:
            assert all(may or not length for may, length in zip(splits, shared, strict=True))
        assert any(map(any, watched.shared)) == (rule is ALWAYS and any(splits) and caching)
        answers.append(watched.tokens)
    assert answers[0] == answers[1]


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), num_blocks=st.sampled_from([None, 24]), budget=st.sampled_from([7, 64]))
def test_tokens_and_logits_stay_whatever_comes_and_goes(seed: int, num_blocks: int | None, budget: int) -> None:
    choose = random.Random(seed)
    systems = [SYSTEM, SYSTEM[:10] + [50] * 6, [60]]
    weights = choose.choice([(1, 0, 0), (4, 4, 1)])
    arrivals = [
        (
            choose.randrange(8),
            choose.choices(systems, weights)[0] + [choose.randrange(97) for _ in range(choose.randint(1, 6))],
            choose.randint(1, 12),
        )
        for _ in range(choose.randint(2, 6))
    ]
    leaving = choose.randrange(len(arrivals) + 3)
    options = EngineOptions(
        block_size=BLOCK, num_blocks=num_blocks, max_num_batched_tokens=budget, max_num_seqs=4, max_model_len=60
    )
    sides: list[Watched] = []
    for rule in (ALWAYS, NEVER):
        watched = watch(rule, options=options)
        for moment in range(8):
            for index, (when, prompt, max_tokens) in enumerate(arrivals):
                if when == moment:
                    watched.add(str(index), prompt, max_tokens)
            if moment == 5:
                watched.engine.abort(str(leaving))
            watched.step()
        watched.run()
        sides.append(watched)
    assert sides[0].tokens == sides[1].tokens
    assert len(sides[0].logits) == len(sides[1].logits)
    for split, whole in zip(sides[0].logits, sides[1].logits, strict=True):
        torch.testing.assert_close(split, whole, rtol=1e-4, atol=1e-4)
