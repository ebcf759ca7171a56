"""Soft cap, ALiBi, windows, sinks and log-sum-exps: every implementation of paged attention, every combination."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from attention_batches import ints
from hypothesis import given, settings
from torch import Tensor

from genericbuilders.kernels import portable, reference
from genericbuilders.kernels.native import NativeKernels, native_kernels
from genericbuilders.kernels.protocols import PagedAttention
from genericbuilders.kernels.scoring import Scoring
from tests.kernels.paged_batches import DTYPES, Batch, assert_near_exact, batches, forget, make_batch, make_scoring


@pytest.fixture(scope="module")
def native() -> NativeKernels:
    found = native_kernels()
    if not isinstance(found, NativeKernels):
        pytest.skip(found.reason)
    return found


@settings(max_examples=150)
@given(batch=batches())
def test_native_is_near_exact(native: NativeKernels, batch: Batch) -> None:
    assert_near_exact(batch, native.paged_attention)


@given(batch=batches())
def test_portable_is_near_exact(batch: Batch) -> None:
    assert_near_exact(batch, portable.paged_attention)


def by_definition(batch: Batch) -> tuple[Tensor, Tensor]:
    """Result and log-sum-exps of a batch, one token, head and key at a time, in Python's own float64."""
    rules, heads = batch.scoring, batch.query.shape[1]
    out = torch.zeros(*batch.query.shape[:2], batch.value_cache.shape[3], dtype=torch.float64)
    lse = torch.full(batch.query.shape[:2], -math.inf, dtype=torch.float64)
    block_size, group = batch.key_cache.shape[1], heads // batch.key_cache.shape[2]
    starts = ints(batch.query_start_loc)
    for row in range(len(starts) - 1):
        length = int(batch.seq_lens[row])
        for token in range(starts[row], starts[row + 1]):
            position = length - starts[row + 1] + token
            for head in range(heads):
                weights: list[float] = []
                values: list[Tensor] = []
                for place in range(length):
                    far = abs(place - position) >= (rules.sliding_window or 2**60)
                    if far or (batch.causal and place > position):
                        continue
                    block, offset = int(batch.block_table[row, place // block_size]), place % block_size
                    key = batch.key_cache[block, offset, head // group].double()
                    score = float(batch.query[token, head].double() @ key) / math.sqrt(batch.query.shape[2])
                    if rules.soft_cap is not None:
                        score = rules.soft_cap * math.tanh(score / rules.soft_cap)
                    if rules.alibi_slopes is not None:
                        score += float(rules.alibi_slopes[head]) * (place - position)
                    weights.append(math.exp(score))
                    values.append(batch.value_cache[block, offset, head // group].double())
                total = sum(weights) + (0.0 if rules.sinks is None else math.exp(float(rules.sinks[head])))
                if length and total:
                    lse[token, head] = math.log(total)
                for weight, value in zip(weights, values, strict=True):
                    out[token, head] += weight / total * value
    return out, lse


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "rules",
    [
        make_scoring(4, soft_cap=2.0),
        make_scoring(4, alibi=True),
        make_scoring(4, window=3),
        make_scoring(4, sinks=True),
        make_scoring(4, soft_cap=2.0, alibi=True, window=3, sinks=True),
    ],
)
def test_reference_is_the_definition(causal: bool, rules: Scoring) -> None:
    batch = make_batch([(1, 6), (3, 2), (4, 0)], block_size=2, num_kv_heads=2, head_size=5, causal=causal)
    batch = replace(batch.wide(), scoring=rules)
    out, lse = by_definition(batch)
    torch.testing.assert_close(batch.run(reference.paged_attention), out)
    torch.testing.assert_close(batch.sums(reference.paged_attention), lse)


@pytest.mark.parametrize("name", ["native", "portable", "reference"])
@pytest.mark.parametrize("sinks", [True, False])
def test_tokens_that_see_nothing(native: NativeKernels, name: str, sinks: bool) -> None:
    # 6 tokens on 2 keys, not causal: the first ones sit at -4 to -1, and see within 2.
    kernel = kernels(native)[name]
    batch = make_batch([(6, -4), (2, -2), (1, 3)], num_kv_heads=1, group=2, causal=False, padding_tokens=1)
    batch = replace(batch, scoring=make_scoring(2, window=2, sinks=sinks))
    out, lse = batch.run(kernel), batch.sums(kernel)
    assert not out[:3].any()
    assert out[3:6].all()
    expected = batch.scoring.sinks if batch.scoring.sinks is not None else torch.tensor([-math.inf, -math.inf])
    torch.testing.assert_close(lse[:3], expected.expand(3, 2))
    assert (lse[3:6] > -math.inf).all()
    # A row of length 0, and padding.
    for nothing in (slice(6, 8), slice(9, 10)):
        assert not out[nothing].any()
        assert (lse[nothing] == -math.inf).all()


def kernels(native: NativeKernels) -> dict[str, PagedAttention]:
    return {
        "native": native.paged_attention,
        "portable": portable.paged_attention,
        "reference": reference.paged_attention,
    }


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("width", [1, 17])
def test_portable_in_small_chunks(monkeypatch: pytest.MonkeyPatch, causal: bool, width: int) -> None:
    monkeypatch.setattr(portable, "CHUNK_ELEMENTS", 1)
    monkeypatch.setattr(portable, "MAX_SEGMENT", 5)
    batch = make_batch([(width, 3), (1, 40), (0, 5), (width, 0), (1, 0)], causal=causal, padding_tokens=1)
    for window in (None, 1, 7, 30):
        rules = make_scoring(2, soft_cap=9.0, alibi=True, window=window, sinks=True)
        assert_near_exact(forget(replace(batch, scoring=rules)), portable.paged_attention)


@pytest.mark.parametrize("window", [None, 1, 2, 17, 100])
def test_portable_decode_with_bounds(window: int | None) -> None:
    # The last row's last 2 tokens lie in 2 blocks.
    batch = make_batch([(1, 20), (0, 0), (1, 0), (1, 304)], padding_tokens=2)
    batch = forget(replace(batch, scoring=make_scoring(2, window=window, sinks=True)))
    lse = torch.zeros(batch.query.shape[:2])
    bounded = portable.paged_attention(
        batch.query,
        batch.key_cache,
        batch.value_cache,
        query_start_loc=batch.query_start_loc,
        seq_lens=batch.seq_lens,
        block_table=batch.block_table,
        scale=0.125,
        causal=True,
        max_query_len=1,
        max_seq_len=310,
        scoring=batch.scoring,
        lse=lse,
    )
    torch.testing.assert_close(bounded, batch.run(reference.paged_attention))
    torch.testing.assert_close(lse, batch.sums(reference.paged_attention))


def few_long_and_many(causal: bool, window: int | None, dtype: torch.dtype = torch.float32) -> Batch:
    rows = [(1, 0), (1, 1500), (0, 0), (40, 200), (1, 255), (1, 256), (33, 0), (1, 90), (2, 700)]
    batch = make_batch(rows, num_kv_heads=2, group=3, head_size=40, dtype=dtype, causal=causal)
    return forget(replace(batch, scoring=make_scoring(6, soft_cap=5.0, alibi=True, window=window, sinks=True)))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 300])
def test_native_depends_on_neither_threads_nor_neighbours(
    native: NativeKernels, causal: bool, window: int | None
) -> None:
    before = torch.get_num_threads()
    batch = few_long_and_many(causal, window)
    try:
        results: list[Tensor] = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(
                torch.cat([batch.run(native.paged_attention), batch.sums(native.paged_attention)[..., None]], 2)
            )
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    for row in range(batch.query_start_loc.shape[0] - 1):
        start, end = int(batch.query_start_loc[row]), int(batch.query_start_loc[row + 1])
        alone = replace(
            batch,
            query=batch.query[start:end],
            query_start_loc=torch.tensor([0, end - start], dtype=torch.int32),
            seq_lens=batch.seq_lens[row : row + 1],
            block_table=batch.block_table[row : row + 1],
        )
        assert torch.equal(alone.run(native.paged_attention), results[0][start:end, :, :-1]), row


@pytest.mark.parametrize("window", [5, 64, 70])
def test_native_prefill_does_not_depend_on_chunks(native: NativeKernels, window: int) -> None:
    whole = make_batch([(250, 0)], head_size=24)
    whole = replace(whole, scoring=make_scoring(2, alibi=True, window=window, sinks=True))
    result = whole.run(native.paged_attention)
    for first, last in ((0, 37), (37, 39), (39, 150), (150, 250)):
        chunk = replace(
            whole,
            query=whole.query[first:last],
            query_start_loc=torch.tensor([0, last - first], dtype=torch.int32),
            seq_lens=torch.tensor([last], dtype=torch.int32),
        )
        assert torch.equal(forget(chunk).run(native.paged_attention), result[first:last])


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_sum_exps_leave_the_result_alone(native: NativeKernels, dtype: torch.dtype) -> None:
    batch = make_batch([(1, 700), (30, 5)], dtype=dtype)
    lse = torch.zeros(31, 2)
    assert torch.equal(batch.run(native.paged_attention, lse), batch.run(native.paged_attention))


@pytest.mark.parametrize("size", [1e-4, 1.0, 30.0, 1e4])
def test_soft_cap_is_exact_for_scores_of_any_size(native: NativeKernels, size: float) -> None:
    batch = make_batch([(1, 20), (3, 30)])
    batch = replace(batch, query=batch.query * size, scoring=Scoring(soft_cap=20.0))
    assert_near_exact(batch, native.paged_attention)


GOOD = make_batch([(1, 20), (3, 30)])


@pytest.mark.parametrize("name", ["native", "portable", "reference"])
def test_bad_rules_are_named(native: NativeKernels, name: str) -> None:
    kernel = kernels(native)[name]
    for field in ("alibi_slopes", "sinks"):
        three = Scoring(alibi_slopes=torch.zeros(3)) if field == "alibi_slopes" else Scoring(sinks=torch.zeros(3))
        with pytest.raises(ValueError, match=f"{field} has 3 entries for 2 query heads"):
            replace(GOOD, scoring=three).run(kernel)
    for lse in (torch.zeros(4, 3), torch.zeros(4, 2, dtype=torch.bfloat16)):
        with pytest.raises(ValueError, match=r"lse is torch\.\w+ \(4, \d\).*it must be .*float32 \(4, 2\)"):
            GOOD.run(kernel, lse)
    with pytest.raises(ValueError, match=r"row 1 has 3 new tokens but .* 2 tokens in all"):
        replace(GOOD, seq_lens=torch.tensor([21, 2], dtype=torch.int32)).run(kernel)


def test_the_widest_window_is_none(native: NativeKernels) -> None:
    batch = make_batch([(1, 20), (30, 30)], causal=False)
    widest = replace(batch, scoring=Scoring(sliding_window=2**63 - 1))
    for name, kernel in kernels(native).items():
        assert torch.equal(widest.run(kernel), batch.run(kernel)), name


def test_native_refuses_slopes_with_gaps(native: NativeKernels) -> None:
    with pytest.raises(ValueError, match="sinks's last axis has stride 2"):
        replace(GOOD, scoring=Scoring(sinks=torch.zeros(4)[::2])).run(native.paged_attention)


def test_rules_check_themselves() -> None:
    for window in (0, -1):
        with pytest.raises(ValueError, match=f"sliding_window is {window}; it must be at least 1"):
            Scoring(sliding_window=window)
    with pytest.raises(ValueError, match=r"soft_cap is 0\.0"):
        Scoring(soft_cap=0.0)
    with pytest.raises(ValueError, match=r"sinks is torch\.float64"):
        Scoring(sinks=torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize("name", ["native", "portable", "reference"])
def test_a_cache_of_more_than_2_to_the_31_elements(native: NativeKernels, name: str) -> None:
    block_elements = 16 * 2 * 64
    num_blocks = 2**31 // block_elements + 3
    try:
        # Only the pages that are written to become memory.
        pool = torch.empty(num_blocks, 16, 2, 64, dtype=torch.float16)
    except RuntimeError:
        pytest.skip("not enough address space")
    batch = make_batch([(1, 20), (4, 30)], num_kv_heads=1, group=2, head_size=64, dtype=torch.float16)
    far = num_blocks - batch.key_cache.shape[0]
    pool[far:, :, 0:1], pool[far:, :, 1:2] = batch.key_cache, batch.value_cache
    table = batch.block_table[:2] + far
    moved = replace(batch, key_cache=pool[:, :, 0:1], value_cache=pool[:, :, 1:2], block_table=table)
    assert torch.equal(moved.run(kernels(native)[name]), batch.run(kernels(native)[name]))
