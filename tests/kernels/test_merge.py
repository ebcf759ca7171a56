"""Merging partial results: exact, whatever the parts, their strides and what is missing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.kernels import reference, varlen
from genericbuilders.kernels.merge import merge_attention_states, merge_prefix
from genericbuilders.kernels.native import NativeKernels, native_kernels
from genericbuilders.kernels.protocols import PagedAttention, VarlenAttention
from genericbuilders.kernels.scoring import Scoring
from genericbuilders.kernels.tolerance import compare
from tests.kernels.paged_batches import DTYPES, Batch, make_batch

TOKENS, HEADS, SIZE = 4, 3, 5


def strided(*shape: int) -> Tensor:
    """A tensor of such a shape whose strides are those of another order of the axes, with gaps."""
    return torch.empty(*reversed(shape), 2)[..., 0].permute(*reversed(range(len(shape))))


def parts(num: int, dtype: torch.dtype, seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """Random results, each with strides of its own, and log-sum-exps far apart, some of them -inf."""
    generator = torch.Generator().manual_seed(seed)
    outs: list[Tensor] = []
    lses: list[Tensor] = []
    for index in range(num):
        out = torch.randn(TOKENS, HEADS, SIZE, generator=generator).to(dtype)
        lse = 20 * torch.randn(TOKENS, HEADS, generator=generator)
        missing = torch.rand(TOKENS, HEADS, generator=generator) < 0.4
        lse[missing] = -math.inf
        out[missing] = math.nan  # what it holds must not matter
        if index % 2:
            out, lse = strided(*out.shape).to(dtype).copy_(out), strided(*lse.shape).copy_(lse)
        outs.append(out)
        lses.append(lse)
    return outs, lses


def by_definition(outs: list[Tensor], lses: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The merged result in float64, number by number."""
    merged, whole = torch.zeros(TOKENS, HEADS, SIZE).double(), torch.full((TOKENS, HEADS), -math.inf).double()
    for token in range(TOKENS):
        for head in range(HEADS):
            seen = [(float(lse[token, head]), out[token, head].double()) for out, lse in zip(outs, lses, strict=True)]
            seen = [(lse, out) for lse, out in seen if lse > -math.inf]
            if not seen:
                continue
            top = max(lse for lse, _ in seen)
            total = sum(math.exp(lse - top) for lse, _ in seen)
            whole[token, head] = top + math.log(total)
            merged[token, head] = sum(math.exp(lse - top) / total * out for lse, out in seen)
    return merged, whole


@given(num=st.integers(1, 4), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 10**6))
def test_merges_by_definition(num: int, dtype: torch.dtype, seed: int) -> None:
    outs, lses = parts(num, dtype, seed)
    exact, exact_lse = by_definition(outs, lses)
    double_lse, whole = strided(TOKENS, HEADS).double(), strided(TOKENS, HEADS)
    double = merge_attention_states(outs, lses, lse=double_lse, dtype=torch.float64)
    torch.testing.assert_close(double, exact.to(dtype))
    torch.testing.assert_close(double_lse, exact_lse)
    merged = merge_attention_states(outs, lses, lse=whole)
    assert merged.dtype == dtype
    assert compare(merged, exact.to(dtype), exact).passed
    torch.testing.assert_close(whole, exact_lse.float())


def test_writes_over_one_of_the_parts() -> None:
    outs, lses = parts(2, torch.float32, 1)
    expected_lse = torch.empty_like(lses[0])
    expected = merge_attention_states([out.clone() for out in outs], lses, lse=expected_lse)
    written = merge_attention_states(outs, lses, out=outs[1], lse=lses[0])
    assert written is outs[1]
    assert torch.equal(written, expected)
    assert torch.equal(lses[0], expected_lse)


@given(dtype=st.sampled_from([*DTYPES, torch.float64]), seed=st.integers(0, 10**6))
def test_a_prefix_and_the_rest_merge_by_definition(dtype: torch.dtype, seed: int) -> None:
    outs, lses = parts(2, dtype, seed)
    exact, _ = by_definition(outs, lses)
    # As kernels leave what saw nothing.
    prefix, rest = (out.nan_to_num(0.0) for out in outs)
    wide = [lse.to(torch.promote_types(dtype, torch.float32)) for lse in lses]
    working = merge_attention_states(outs, wide)
    merged = merge_prefix(prefix, wide[0], rest, wide[1])
    assert merged.dtype == dtype
    found = compare(merged, working, exact)
    assert found.passed, str(found)
    alone = (lses[0] > -math.inf) & (lses[1] == -math.inf)
    assert torch.equal(merged[alone], outs[0][alone])
    assert not merged[(lses[0] == -math.inf) & (lses[1] == -math.inf)].any()


def test_a_number_that_is_none_is_not_hidden_by_a_merge() -> None:
    for spoilt in range(2):
        outs, lses = torch.ones(2, 1, 1, 3), torch.zeros(2, 1, 1)
        outs[spoilt], lses[spoilt] = math.nan, math.nan
        assert merge_prefix(outs[0], lses[0], outs[1], lses[1]).isnan().all()


@pytest.fixture(scope="module")
def native() -> NativeKernels:
    found = native_kernels()
    if not isinstance(found, NativeKernels):
        pytest.skip(found.reason)
    return found


@pytest.mark.parametrize("name", ["native", "portable", "reference"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_case_19_context_longer_than_the_workspace(native: NativeKernels, name: str, dtype: torch.dtype) -> None:
    # MLA's chunked context: 9 new tokens on 100 keys, 91 of them in chunks of 32, as one pass in float64.
    kernel: VarlenAttention = {
        "native": native.varlen_attention,
        "portable": varlen.varlen_attention,
        "reference": reference.varlen_attention,
    }[name]
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(9, 4, 24, generator=generator).to(dtype)
    key = torch.randn(100, 4, 24, generator=generator).to(dtype)
    # Values of another size, with strides of their own: keys and values come out of one projection.
    value = torch.randn(100, 4, 40, generator=generator).to(dtype)[..., 24:]

    def attend(attention: VarlenAttention, query: Tensor, first: int, last: int, causal: bool) -> tuple[Tensor, Tensor]:
        wide = query.dtype == torch.float64
        keys, values = (key.double(), value.double()) if wide else (key, value)
        lse = torch.empty(4, 9, dtype=torch.float64 if wide else torch.float32).T
        out = attention(
            query,
            keys[first:last],
            values[first:last],
            cu_seqlens_q=torch.tensor([0, 9], dtype=torch.int32),
            cu_seqlens_k=torch.tensor([0, last - first], dtype=torch.int32),
            max_seqlen_q=9,
            max_seqlen_k=last - first,
            scale=0.2,
            causal=causal,
            lse=lse,
        )
        return out, lse

    suffix = attend(kernel, query, 91, 100, True)
    prefix: tuple[Tensor, Tensor] | None = None
    for first in range(0, 91, 32):
        chunk = attend(kernel, query, first, min(first + 32, 91), False)
        if prefix is not None:
            merge_attention_states([prefix[0], chunk[0]], [prefix[1], chunk[1]], out=chunk[0], lse=chunk[1])
        prefix = chunk
    assert prefix is not None
    # Prefix and suffix have strides of their own: one is a slice of a wider buffer, as after padded values.
    wider = torch.full((9, 4, 24), math.nan, dtype=dtype)
    wider[..., :16] = prefix[0]
    whole = torch.empty(9, 4)
    merged = merge_attention_states([wider[..., :16], suffix[0]], [prefix[1], suffix[1]], lse=whole)
    exact, exact_lse = attend(reference.varlen_attention, query.double(), 0, 100, True)
    working, _ = attend(reference.varlen_attention, query, 0, 100, True)
    # Three merges more round the result three times more, in the parts' dtype.
    found = compare(merged, working, exact, roundings=16.0)
    assert found.passed, str(found)
    torch.testing.assert_close(whole, exact_lse.float(), rtol=1e-6, atol=1e-5)


def cascade(batch: Batch, prefix_len: int, kernel: PagedAttention) -> Tensor:
    """All rows on a common prefix in one piece, each on the rest, merged."""
    num_tokens, num_reqs = batch.query.shape[0], batch.query_start_loc.shape[0] - 1
    blocks = prefix_len // batch.key_cache.shape[1]
    one = replace(
        batch,
        query_start_loc=torch.tensor([0, num_tokens], dtype=torch.int32),
        seq_lens=torch.tensor([prefix_len], dtype=torch.int32),
        block_table=batch.block_table[:1, :blocks],
        causal=False,
        scoring=replace(batch.scoring, sinks=None),
    )
    rest = replace(
        batch,
        seq_lens=batch.seq_lens[:num_reqs] - prefix_len,
        block_table=batch.block_table[:num_reqs, blocks:],
    )
    states = [one.run(kernel), rest.run(kernel)]
    return merge_attention_states(states, [one.sums(kernel), rest.sums(kernel)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sinks", [True, False])
def test_cascade_is_one_pass(native: NativeKernels, dtype: torch.dtype, sinks: bool) -> None:
    batch = make_batch([(1, 40), (5, 60), (1, 33)], num_kv_heads=2, group=3, dtype=dtype)
    batch.block_table[:, :2] = batch.block_table[0, :2].clone()
    # A sink counts once: with the rows' own keys.
    batch = replace(batch, scoring=Scoring(soft_cap=30.0, sinks=torch.linspace(-2, 2, 6) if sinks else None))
    exact = batch.wide().run(reference.paged_attention)
    found = compare(
        cascade(batch, 32, native.paged_attention), batch.run(reference.paged_attention), exact, roundings=16.0
    )
    assert found.passed, str(found)


def test_parts_that_do_not_agree_are_named() -> None:
    outs, lses = parts(2, torch.float32, 0)
    with pytest.raises(ValueError, match="2 results and 1 log-sum-exps"):
        merge_attention_states(outs, lses[:1])
    with pytest.raises(ValueError, match="0 results"):
        merge_attention_states([], [])
    with pytest.raises(ValueError, match=r"part 1 is torch\.float32 \(3, 3, 5\)"):
        merge_attention_states([outs[0], outs[1][:3]], lses)
    with pytest.raises(ValueError, match=r"part 1 .* log-sum-exps \(3, 4\)"):
        merge_attention_states(outs, [lses[0], lses[1].T])
    with pytest.raises(ValueError, match=r"out is \(3, 5\); it must be \(4, 3, 5\)"):
        merge_attention_states(outs, lses, out=outs[0][0])
    with pytest.raises(ValueError, match=r"lse is \(3, 4\); it must be \(4, 3\)"):
        merge_attention_states(outs, lses, lse=lses[0].T)
