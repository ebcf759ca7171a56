"""The scheduler alone, on groups of attention and of states: order, pieces, waiting, preemption."""

from __future__ import annotations

import random

import pytest
import torch

from genericbuilders.cache import BlockPool, GroupManager, KVCacheCoordinator, make_manager
from genericbuilders.config import EngineConfig
from genericbuilders.engine.request import Request, RequestError, SamplingParams
from genericbuilders.engine.scheduler import Scheduler, SchedulerOutput
from genericbuilders.specs import FullAttentionSpec, MambaCacheMode, MambaSpec


def attention(block_size: int = 4, num_blocks: int = 65) -> GroupManager:
    spec = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.float32)
    return make_manager(spec, BlockPool(num_blocks))


def states(mode: MambaCacheMode = "none", block_size: int = 4, num_states: int = 8) -> GroupManager:
    spec = MambaSpec(block_size=block_size, shapes=((2,),), dtypes=(torch.float32,), mamba_cache_mode=mode)
    return make_manager(spec, BlockPool(num_states + 1))


def scheduler_of(*managers: GroupManager, budget: int = 64, max_num_seqs: int = 16, caching: bool = True) -> Scheduler:
    config = EngineConfig(max_model_len=256, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget)
    return Scheduler(config, KVCacheCoordinator(managers, enable_prefix_caching=caching))


def add(scheduler: Scheduler, name: str, num_prompt_tokens: int, max_tokens: int = 4, first: int = 0) -> Request:
    prompt = range(first, first + num_prompt_tokens)
    request = Request(name, list(prompt), SamplingParams(max_tokens=max_tokens))
    scheduler.add(request)
    return request


def run(scheduler: Scheduler) -> tuple[SchedulerOutput, dict[str, int]]:
    """One step as the engine makes it: rows advance, those that sample get a token, and the finished go."""
    output = scheduler.schedule()
    fed = {row.request.request_id: row.num_tokens for row in output.rows}
    for row in output.rows:
        scheduler.advance(row)
        if row.samples:
            row.request.token_ids.append(7)
            if row.request.num_output_tokens == row.request.params.max_tokens:
                scheduler.finish(row.request.request_id)
    return output, fed


def all_free(scheduler: Scheduler) -> bool:
    return all(pool.num_free_blocks == pool.num_usable_blocks for pool in scheduler.coordinator.pools)


def test_decodes_come_first_and_a_prompt_of_one_token_is_none() -> None:
    scheduler = scheduler_of(attention(), states(), budget=12)
    add(scheduler, "long", 20)
    add(scheduler, "one", 1)
    _, fed = run(scheduler)
    assert fed == {"long": 12}
    _, fed = run(scheduler)
    # Nothing of "one" is computed: it starts a state, so it is no decode and keeps its place behind "long".
    assert list(fed.items()) == [("long", 8), ("one", 1)]
    add(scheduler, "two", 1, first=50)
    add(scheduler, "three", 5, first=60)
    output, fed = run(scheduler)
    assert list(fed.items()) == [("long", 1), ("one", 1), ("two", 1), ("three", 5)]
    assert [row.request.num_computed_tokens - row.num_tokens for row in output.rows] == [20, 1, 0, 0]
    add(scheduler, "four", 9, first=70)
    add(scheduler, "five", 1, first=90)
    _, fed = run(scheduler)
    assert list(fed) == ["long", "one", "two", "three", "four"]
    _, fed = run(scheduler)
    # The last piece of "four" is one token of a request that has begun: its state goes on, as a decode's does.
    assert list(fed.items()) == [("long", 1), ("one", 1), ("two", 1), ("three", 1), ("four", 1), ("five", 1)]


def test_a_first_piece_of_one_token_stands_behind_the_decodes() -> None:
    scheduler = scheduler_of(states(), budget=3)
    add(scheduler, "a", 4)
    add(scheduler, "b", 1)
    assert run(scheduler)[1] == {"a": 3}
    add(scheduler, "c", 1)
    assert list(run(scheduler)[1].items()) == [("a", 1), ("b", 1), ("c", 1)]
    # All have begun now; "b" samples its second token.
    assert list(run(scheduler)[1].items()) == [("a", 1), ("b", 1), ("c", 1)]


def test_case_12_a_prompt_is_cut_at_the_state_groups_own_block() -> None:
    managers = (attention(816, 20), states("align", 1648, 8))
    config = EngineConfig(max_model_len=8192, max_num_seqs=4, max_num_batched_tokens=2000)
    scheduler = Scheduler(config, KVCacheCoordinator(managers, enable_prefix_caching=True))
    request = Request("a", [index % 97 for index in range(3500)], SamplingParams(max_tokens=2))
    scheduler.add(request)
    ends: list[int] = []
    while request.num_output_tokens == 0:
        run(scheduler)
        ends.append(request.num_computed_tokens)
    assert ends == [1648, 3296, 3500]
    # Both block ends were hashed, and hold what they say: the pieces ended there.
    assert managers[1].pool.num_cached_blocks == 2


def test_case_11_a_budget_that_others_use_too_never_hides_a_block_end() -> None:
    scheduler = scheduler_of(states("align", 16, 8), budget=20)
    add(scheduler, "a", 5, max_tokens=20, first=100)
    run(scheduler)
    b = add(scheduler, "b", 40)
    ends = [b.num_computed_tokens]
    while b.num_output_tokens == 0:
        run(scheduler)
        ends.append(b.num_computed_tokens)
    # 19 tokens are left beside "a": 16, then 16 of 19, then the rest.
    assert ends == [0, 16, 32, 40]


def test_requests_that_find_no_state_wait_and_none_is_lost() -> None:
    scheduler = scheduler_of(attention(), states(num_states=3), max_num_seqs=16)
    requests = [add(scheduler, f"r{index}", 5 + index, max_tokens=2 + index % 3) for index in range(10)]
    ended: list[str] = []
    while len(scheduler):
        output, _ = run(scheduler)
        assert output.rows
        assert not output.preempted
        assert len(scheduler.running) <= 3
        ended += [r.request_id for r in requests if r.num_output_tokens == r.params.max_tokens]
    assert sorted(set(ended)) == sorted(request.request_id for request in requests)
    assert all_free(scheduler)


@pytest.mark.parametrize("mode", ["none", "align", "all"])
def test_random_loads_end_with_every_block_given_back(mode: MambaCacheMode) -> None:
    choose = random.Random(1)
    num_preempted = 0
    for _ in range(15):
        size = choose.choice([2, 3, 8])
        most = {"none": 3, "align": 5, "all": 45 // size + 2}[mode]
        scheduler = scheduler_of(
            attention(choose.choice([2, 4]), 24), states(mode, size, most), budget=choose.randint(1, 30)
        )
        requests = [
            add(scheduler, str(index), choose.randint(1, 30), choose.randint(1, 15), choose.choice([0, 0, 50]))
            for index in range(8)
        ]
        num_steps = 0
        while len(scheduler):
            output, _ = run(scheduler)
            num_preempted += len(output.preempted)
            num_steps += 1
            assert output.rows or output.preempted
            assert num_steps < 4000
        assert all(request.num_output_tokens == request.params.max_tokens for request in requests)
        assert all_free(scheduler)
    assert num_preempted > 0


def test_a_request_in_the_middle_can_be_preempted() -> None:
    scheduler = scheduler_of(attention(), states("align", 4, 6))
    a, b, c = (add(scheduler, name, 6, first=10 * index) for index, name in enumerate("abc"))
    run(scheduler)
    scheduler.preempt(b)
    assert (scheduler.running, list(scheduler.waiting)) == ([a, c], [b])
    assert (b.num_computed_tokens, b.num_preemptions) == (0, 1)
    assert not any(scheduler.coordinator.blocks_of("b"))
    with pytest.raises(ValueError, match="not in list"):
        scheduler.preempt(b)
    output, _ = run(scheduler)
    assert output.admitted == (b,)
    assert scheduler.preempt_last() is b


def test_what_can_never_fit_is_refused_by_group_and_numbers() -> None:
    scheduler = scheduler_of(attention(num_blocks=30), states("align", 4, num_states=1))
    message = r"'a' may grow to 13 tokens in the cache, which in group 1 needs 2 states; the pool has 1 beside the null"
    with pytest.raises(RequestError, match=message):
        add(scheduler, "a", 10)
    assert len(scheduler) == 0
    add(scheduler, "b", 2, max_tokens=3)
    with pytest.raises(RequestError, match="in group 0 needs 33 blocks of 4 tokens; the pool has 29"):
        add(scheduler, "c", 129)
    while len(scheduler):
        run(scheduler)
    assert all_free(scheduler)
