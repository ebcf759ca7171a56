"""The Triton kernels in Triton's interpreter, against the reference in float64.

Run by test_triton.py in a process of its own: Triton reads ``TRITON_INTERPRET`` when kernels are made, its own too.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from attention_batches import make_batch as make_common
from hybrid_batches import HandFed
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_attention import tiny_attention
from torch import Tensor

from genericbuilders.backends.triton import TRITON, TritonImpl
from genericbuilders.config import AttentionLayerConfig, EngineConfig, KVCacheLayout
from genericbuilders.kernels import portable, reference
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.scoring import Scoring
from genericbuilders.kernels.select import AttentionKernels, find_kernels, select_kernels
from genericbuilders.kernels.tolerance import compare
from genericbuilders.kernels.triton.attention import Tiles, TritonAttention
from genericbuilders.kernels.triton.find import TritonKernels, triton_kernels
from genericbuilders.specs import SlidingWindowSpec
from genericbuilders_transformers import layers
from genericbuilders_transformers.model import TransformersModel
from tests.kernels.paged_batches import DTYPES, Batch, assert_near_exact, forget, make_batch, make_scoring, scorings

CPU = torch.device("cpu")
FAST = TritonAttention(triton_kernels)
LENGTHS = [0, 1, 2, 15, 16, 17, 31, 33, 48, 70]


@st.composite
def small_batches(draw: st.DrawFn) -> Batch:
    """Decodes, rows of several tokens and empty rows in any order, with any rules."""
    row = st.tuples(st.sampled_from([0, 1, 1, 2, 5, 16, 21]), st.sampled_from(LENGTHS))
    batch = make_batch(
        draw(st.lists(row, max_size=4)),
        block_size=draw(st.sampled_from([1, 16, 24, 64])),
        num_kv_heads=draw(st.integers(1, 2)),
        group=draw(st.sampled_from([1, 3, 4, 8])),
        head_size=draw(st.sampled_from([64, 72, 80, 96, 128, 192, 256])),
        value_head_size=draw(st.sampled_from([None, None, 19, 64])),
        dtype=draw(st.sampled_from(DTYPES)),
        causal=draw(st.booleans()),
        padding_tokens=draw(st.sampled_from([0, 3])),
        seed=draw(st.integers(0, 9)),
    )
    return forget(replace(batch, scoring=draw(scorings(batch.query.shape[1]))))


def test_the_kernels_are_interpreted() -> None:
    kernels = triton_kernels()
    assert isinstance(kernels, TritonKernels)
    assert type(kernels.attend_rows).__name__ == "InterpretedFunction"


@settings(max_examples=20)
@given(batch=small_batches())
def test_it_is_near_exact(batch: Batch) -> None:
    assert_near_exact(batch, FAST.paged_attention)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [True, False])
def test_every_rule_on_a_mixed_batch(dtype: torch.dtype, causal: bool) -> None:
    rows = [(1, 40), (19, 30), (0, 4), (1, 0), (2, 64)]
    plain = make_batch(rows, num_kv_heads=2, group=3, head_size=80, dtype=dtype, causal=causal, padding_tokens=2)
    all_rules = make_scoring(6, soft_cap=3.0, alibi=True, window=9, sinks=True)
    for rules in (Scoring(), replace(all_rules, sliding_window=None), all_rules):
        assert_near_exact(forget(replace(plain, scoring=rules)), FAST.paged_attention)


@pytest.mark.parametrize("programs", [1, 12, 1000])
@pytest.mark.parametrize("window", [None, 50])
def test_splits_merge_exactly(programs: int, window: int | None) -> None:
    """A request of one token has more runs than keys, one of many tokens has several steps in each."""
    tiles = Tiles(decode_keys=16, prefill_rows=16, prefill_keys=16, programs=programs, split_keys=16, warps=4)
    batch = make_batch([(1, 0), (1, 5), (1, 330)], num_kv_heads=1, group=2, head_size=64)
    rules = make_scoring(2, soft_cap=8.0, alibi=True, window=window, sinks=True)
    for scoring in (rules, replace(rules, sinks=None)):
        assert_near_exact(
            forget(replace(batch, scoring=scoring)), TritonAttention(triton_kernels, tiles).paged_attention
        )


@pytest.mark.parametrize("rows", [16, 64])
def test_results_do_not_depend_on_tiles(rows: int) -> None:
    """A group of 5 leaves rows of a tile unused, and one of 20 is more than 16 rows."""
    tiles = Tiles(decode_keys=32, prefill_rows=rows, prefill_keys=32, programs=4, split_keys=64, warps=4)
    for group in (5, 20):
        batch = make_batch([(30, 20), (3, 0)], num_kv_heads=1, group=group, head_size=64, dtype=torch.bfloat16)
        assert_near_exact(batch, TritonAttention(triton_kernels, tiles).paged_attention)


@pytest.mark.parametrize("sinks", [True, False])
def test_tokens_that_see_nothing(sinks: bool) -> None:
    # 6 tokens on 2 keys, not causal: the first ones sit at -4 to -1, and see within 2.
    batch = make_batch([(6, -4), (2, -2), (1, 3)], num_kv_heads=1, group=2, causal=False, padding_tokens=1)
    batch = replace(batch, scoring=make_scoring(2, window=2, sinks=sinks))
    out, lse = batch.run(FAST.paged_attention), batch.sums(FAST.paged_attention)
    assert not out[:3].any()
    assert out[3:6].all()
    expected = batch.scoring.sinks if batch.scoring.sinks is not None else torch.tensor([-math.inf, -math.inf])
    torch.testing.assert_close(lse[:3], expected.expand(3, 2))
    assert (lse[3:6] > -math.inf).all()
    for nothing in (slice(6, 8), slice(9, 10)):
        assert not out[nothing].any()
        assert (lse[nothing] == -math.inf).all()


@pytest.mark.parametrize(("size", "cap"), [(1e-4, 20.0), (1.0, 20.0), (30.0, 20.0), (1e4, 20.0), (1.0, 1e5)])
def test_soft_cap_is_exact_for_scores_of_any_size(size: float, cap: float) -> None:
    batch = make_batch([(1, 20), (3, 30)])
    assert_near_exact(replace(batch, query=batch.query * size, scoring=Scoring(soft_cap=cap)), FAST.paged_attention)


@pytest.mark.parametrize("logit", [-500.0, 500.0])
def test_sinks_may_be_far_from_the_scores(logit: float) -> None:
    batch = make_batch([(1, 20), (3, 30)])
    assert_near_exact(replace(batch, scoring=Scoring(sinks=torch.tensor([logit, 0.0]))), FAST.paged_attention)


def test_bounds_may_be_loose_and_the_result_strided() -> None:
    batch = make_batch([(3, 4), (1, 40), (0, 0), (1, 0)], padding_tokens=2)
    wide = torch.full((batch.query.shape[0], 5, 70), 7.0)
    out, lse = wide[:, 1:3, 2:66], torch.zeros(2, batch.query.shape[0]).T
    found = FAST.paged_attention(
        batch.query,
        batch.key_cache,
        batch.value_cache,
        query_start_loc=batch.query_start_loc,
        seq_lens=batch.seq_lens,
        block_table=batch.block_table,
        scale=0.125,
        causal=True,
        max_query_len=50,
        max_seq_len=4000,
        out=out,
        lse=lse,
    )
    assert found is out
    torch.testing.assert_close(out, batch.run(reference.paged_attention))
    torch.testing.assert_close(lse, batch.sums(reference.paged_attention))
    assert (wide[:, 0] == 7).all()
    assert (wide[:, 1:3, :2] == 7).all()
    assert (wide[:, 1:3, 66:] == 7).all()


def test_slopes_and_sinks_may_have_gaps() -> None:
    batch = make_batch([(1, 20), (3, 30)])
    scoring = make_scoring(4, alibi=True, sinks=True)
    assert scoring.alibi_slopes is not None
    assert scoring.sinks is not None
    gaps = Scoring(alibi_slopes=scoring.alibi_slopes[::2], sinks=scoring.sinks[::2])
    assert_near_exact(replace(batch, scoring=gaps), FAST.paged_attention)


@settings(max_examples=12)
@given(
    rows=st.lists(st.tuples(st.sampled_from([0, 1, 2, 17]), st.sampled_from([0, 1, 16, 35])), max_size=4),
    causal=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    window=st.sampled_from([None, 4]),
    sinks=st.booleans(),
)
def test_attention_without_a_cache(
    rows: list[tuple[int, int]], causal: bool, dtype: torch.dtype, window: int | None, sinks: bool
) -> None:
    counts = [(new, old + new if causal and old + new else old) for new, old in rows]
    generator = torch.Generator().manual_seed(len(rows))
    queries, keys = (sum(column) for column in zip((0, 0), *counts, strict=True))
    query = torch.randn(queries + 2, 4, 72, generator=generator).to(dtype)
    key = torch.randn(keys, 2, 72, generator=generator).to(dtype)
    value = torch.randn(keys, 2, 40, generator=generator).to(dtype)
    bounds = [torch.tensor([0, *column]).cumsum(0).to(torch.int32) for column in zip(*counts, strict=True)] or [
        torch.zeros(1, dtype=torch.int32)
    ] * 2
    scoring = make_scoring(4, window=window, sinks=sinks)

    def run(kernels: AttentionKernels, wide: torch.dtype) -> tuple[Tensor, Tensor]:
        lse = torch.zeros(queries + 2, 4, dtype=torch.promote_types(wide, torch.float32))
        out = kernels.varlen_attention(
            query.to(wide),
            key.to(wide),
            value.to(wide),
            cu_seqlens_q=bounds[0],
            cu_seqlens_k=bounds[1],
            max_seqlen_q=20,
            max_seqlen_k=60,
            scale=0.2,
            causal=causal,
            scoring=scoring,
            lse=lse,
        )
        return out, lse

    oracle = select_kernels(CPU, dtype, "reference")
    for found, working, exact in zip(
        run(select_kernels(CPU, dtype, "triton"), dtype), run(oracle, dtype), run(oracle, torch.float64), strict=True
    ):
        blind = exact.isinf()
        assert torch.equal(found.isinf(), blind)
        compared = compare(
            *(part.masked_fill(blind, 0.0) for part in (found, working, exact)),
        )
        assert compared.passed, compared


def test_large_heads_run_by_the_portable_kernels() -> None:
    batch = make_batch([(1, 20), (3, 30)], head_size=320)
    assert torch.equal(batch.run(FAST.paged_attention), batch.run(portable.paged_attention))
    key = torch.randn(9, 1, 320)
    bounds = torch.tensor([0, 4, 9], dtype=torch.int32)

    def run(name: str) -> Tensor:
        return select_kernels(CPU, torch.float32, name).varlen_attention(
            key,
            key,
            key,
            cu_seqlens_q=bounds,
            cu_seqlens_k=bounds,
            max_seqlen_q=5,
            max_seqlen_k=5,
            scale=0.1,
            causal=True,
        )

    assert torch.equal(run("triton"), run("portable"))


GOOD = make_batch([(1, 20), (3, 30)])


@pytest.mark.parametrize(
    ("batch", "error", "says"),
    [
        (replace(GOOD, query=GOOD.query[..., :60]), ValueError, "head_size 60 and the cache 64"),
        (replace(GOOD, query=GOOD.query.half()), TypeError, "query is torch.float16 and the cache torch.float32"),
        (GOOD.wide(), TypeError, "query is torch.float64; the Triton kernels take"),
        (replace(GOOD, query=GOOD.query.mT.contiguous().mT), ValueError, "query's last axis has stride"),
        (replace(GOOD, block_table=GOOD.block_table[:, :2]), ValueError, "2 columns, and .*blocks of 16 needs 3"),
        (replace(GOOD, block_table=GOOD.block_table + 9), ValueError, "row 0 has block .*the cache has blocks 0 to"),
        (replace(GOOD, block_table=GOOD.block_table.long()), TypeError, "block_table is torch.int64"),
        (replace(GOOD, query=GOOD.query[:3]), ValueError, "row 1 is tokens 1 to 4, of 3 tokens"),
        (replace(GOOD, seq_lens=torch.tensor([21, 2], dtype=torch.int32)), ValueError, "row 1 has 3 new tokens but"),
        (replace(GOOD, query=GOOD.query.to("meta")), ValueError, "query is on meta, the cache on cpu"),
        (replace(GOOD, scoring=Scoring(sinks=torch.zeros(3))), ValueError, "sinks has 3 entries for 2 query heads"),
    ],
)
def test_bad_input_is_named(batch: Batch, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        batch.run(FAST.paged_attention)


def test_a_cache_of_more_than_2_to_the_31_elements() -> None:
    num_blocks = 2**31 // (16 * 2 * 64) + 3
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
    assert torch.equal(moved.run(FAST.paged_attention), batch.run(FAST.paged_attention))


def test_the_back_end_runs_them_where_they_can_run_and_the_others_stay() -> None:
    assert select_kernels(CPU, torch.float32).name != "triton"
    assert isinstance(find_kernels("triton", CPU, torch.float32), AttentionKernels)
    heads = AttentionLayerConfig(4, 2, 64, 0.125, sliding_window=20)
    spec = SlidingWindowSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, sliding_window=20)
    config = EngineConfig(max_model_len=128, layers={"l0": heads})
    common = make_common([1, 7, 1], [30, 12, 0], 16)
    query = torch.randn(9, 4, 64, generator=torch.Generator().manual_seed(1))
    key, value = torch.randn(2, 9, 2, 64, generator=torch.Generator().manual_seed(2)).unbind()
    cache = torch.randn(6, 2, 2, 16, 64, generator=torch.Generator().manual_seed(3))
    layer = TRITON.layer("l0", heads)
    metadata = TRITON.bind(spec, [layer], config, CPU).builder.build(0, common)
    assert TritonImpl(heads).choose_kernels(CPU, torch.float32).name == "triton"
    assert TritonImpl(heads).choose_kernels(CPU, torch.float64).name == "portable"

    def expect(dtype: torch.dtype) -> Tensor:
        keys, values = (part.to(dtype, copy=True) for part in split_kv(cache, KVCacheLayout.BLOCK_FIRST))
        reference.write_kv_cache(key.to(dtype), value.to(dtype), keys, values, common.slot_mapping)
        return reference.paged_attention(
            query.to(dtype),
            keys,
            values,
            query_start_loc=common.query_start_loc,
            seq_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            scale=0.125,
            causal=True,
            scoring=Scoring(sliding_window=20),
        )

    working, exact = expect(torch.float32), expect(torch.float64)
    found = compare(layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata), working, exact)
    assert found.passed, found


@pytest.mark.parametrize("family", ["mistral", "gemma2", "gpt_oss"])
def test_a_model_runs_on_them(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, soft caps and sinks: the logits are transformers' own, for a prompt in two pieces and two tokens more."""
    monkeypatch.setattr(layers, "FLASH_ATTN", TRITON)
    tokens = [(7 * place) % 97 for place in range(15)]
    with torch.inference_mode():
        expected = tiny_attention(family)(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    fed = HandFed(TransformersModel(tiny_attention(family), block_size=4), 1)
    found = [fed.step({0: tokens[first:last]})[0] for first, last in ((0, 6), (6, 13), (13, 14), (14, 15))]
    torch.testing.assert_close(torch.cat(found), expected, rtol=0, atol=1e-4)
