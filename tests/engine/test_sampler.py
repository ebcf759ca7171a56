"""Draws: distribution, filters, and independence from the batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genericbuilders.engine.request import RequestError, SamplingParams
from genericbuilders.engine.sampler import Sampler, filter_logits

LOGITS = torch.tensor([1.0, 3.0, 2.0, -1.0, 0.0])


def tokens_of(params: SamplingParams) -> list[int]:
    return [int(token) for token in filter_logits(LOGITS, params)[1].numpy()]


def test_greedy_takes_the_most_likely() -> None:
    assert Sampler().sample(LOGITS[None], ["a"], [SamplingParams()]) == [1]


def test_top_k_and_top_p_cut_the_list() -> None:
    assert tokens_of(SamplingParams(temperature=1.0)) == [1, 2, 0, 4, 3]
    assert tokens_of(SamplingParams(temperature=1.0, top_k=2)) == [1, 2]
    # softmax(3, 2, 1, 0, -1) = 0.636, 0.234, 0.086, ...: 0.636 does not reach 0.7, and the two first do.
    assert tokens_of(SamplingParams(temperature=1.0, top_p=0.63)) == [1]
    assert tokens_of(SamplingParams(temperature=1.0, top_p=0.7)) == [1, 2]
    assert tokens_of(SamplingParams(temperature=1.0, top_k=1, top_p=0.99)) == [1]
    assert tokens_of(SamplingParams(temperature=1.0, top_p=1e-9)) == [1]


def test_the_temperature_changes_what_top_p_keeps() -> None:
    assert tokens_of(SamplingParams(temperature=0.1, top_p=0.9)) == [1]
    assert len(tokens_of(SamplingParams(temperature=10.0, top_p=0.9))) == 5


def test_a_tiny_temperature_is_greedy() -> None:
    drawn = Sampler().sample(LOGITS[None], ["a"], [SamplingParams(temperature=1e-30, seed=0)])
    assert drawn == [1]


def test_draws_follow_the_distribution() -> None:
    sampler, count = Sampler(), 4000
    params = SamplingParams(temperature=1.0, seed=7)
    drawn = [sampler.sample(LOGITS[None], ["a"], [params])[0] for _ in range(count)]
    for token, probability in enumerate(LOGITS.double().softmax(-1).numpy()):
        # Five standard deviations of a binomial share.
        bound = 5 * (probability * (1 - probability) / count) ** 0.5
        assert abs(drawn.count(token) / count - probability) < bound


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True), st.integers(0, 5))
def test_a_request_s_draws_do_not_depend_on_its_neighbours(order: list[str], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = {name: torch.randn(4, 20, generator=generator) for name in "abc"}
    params = {name: SamplingParams(temperature=0.8, top_k=9, seed=seed + ord(name)) for name in "abc"}
    alone = {name: [step[0] for step in draws(Sampler(), [name], logits, params)] for name in order}
    together = draws(Sampler(), order, logits, params)
    assert {name: [step[row] for step in together] for row, name in enumerate(order)} == alone


def draws(
    sampler: Sampler, names: list[str], logits: dict[str, torch.Tensor], params: dict[str, SamplingParams]
) -> list[list[int | str]]:
    return [
        sampler.sample(torch.stack([logits[name][step] for name in names]), names, [params[name] for name in names])
        for step in range(4)
    ]


def test_rows_without_a_finite_maximum_say_so() -> None:
    logits = torch.stack([LOGITS, LOGITS * float("nan"), torch.full_like(LOGITS, float("-inf")), LOGITS])
    logits[3, 0] = float("inf")
    first, *others = Sampler().sample(logits, list("abcd"), [SamplingParams()] * 4)
    assert first == 1
    assert all("no finite maximum" in str(other) for other in others)


def test_forgetting_starts_a_seed_anew() -> None:
    sampler, params = Sampler(), SamplingParams(temperature=2.0, seed=3)
    first = [sampler.sample(LOGITS[None], ["a"], [params]) for _ in range(8)]
    sampler.forget("a")
    assert [sampler.sample(LOGITS[None], ["a"], [params]) for _ in range(8)] == first


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("stop", ("",)),
        ("seed", 2**70),
        ("top_k", 2.5),
        ("max_tokens", 2.5),
    ],
)
def test_values_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(RequestError, match=field if field != "stop" else "stop text is empty"):
        SamplingParams(**{field: value})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the field varies
