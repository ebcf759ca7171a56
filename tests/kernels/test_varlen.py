"""Attention without a cache: every implementation against the reference in float64, over random rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from attention_batches import ints
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.kernels import reference, varlen
from genericbuilders.kernels.native import NativeKernels, native_kernels
from genericbuilders.kernels.protocols import VarlenAttention
from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.tolerance import compare
from tests.kernels.paged_batches import DTYPES, make_scoring, scorings


@dataclass(frozen=True)
class Rows:
    """One batch: what a kernel is given."""

    query: Tensor
    key: Tensor
    value: Tensor
    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    causal: bool
    scoring: Scoring = PLAIN

    def run(self, kernel: VarlenAttention, lse: Tensor | None = None) -> Tensor:
        return kernel(
            self.query,
            self.key,
            self.value,
            cu_seqlens_q=self.cu_seqlens_q,
            cu_seqlens_k=self.cu_seqlens_k,
            max_seqlen_q=max([0, *ints(self.cu_seqlens_q.diff())]),
            max_seqlen_k=max([0, *ints(self.cu_seqlens_k.diff())]),
            scale=1 / math.sqrt(self.query.shape[2]),
            causal=self.causal,
            scoring=self.scoring,
            lse=lse,
        )

    def sums(self, kernel: VarlenAttention) -> Tensor:
        lse = torch.zeros(self.query.shape[:2], dtype=torch.promote_types(self.query.dtype, torch.float32))
        self.run(kernel, lse)
        return lse

    def wide(self) -> Rows:
        return replace(self, query=self.query.double(), key=self.key.double(), value=self.value.double())


def make_rows(
    rows: list[tuple[int, int]],
    *,
    num_kv_heads: int = 2,
    group: int = 2,
    head_size: int = 16,
    value_head_size: int = 24,
    dtype: torch.dtype = torch.float32,
    causal: bool = True,
    padding: int = 0,
) -> Rows:
    """Rows of ``(queries, keys)``, as slices of wider buffers; what lies around them is NaN."""
    generator = torch.Generator().manual_seed(len(rows))
    num_queries, num_keys = (sum(column) for column in zip(*rows, strict=True)) if rows else (0, 0)

    def slices(tokens: int, heads: int, size: int) -> Tensor:
        wide = torch.full((tokens + padding, heads + 1, size + 3), math.nan)
        wide[:tokens, :heads, :size] = torch.randn(tokens, heads, size, generator=generator)
        return wide.to(dtype)[:, :heads, :size]

    def bounds(column: int) -> Tensor:
        return torch.tensor([0, *(row[column] for row in rows)]).cumsum(0).to(torch.int32)

    return Rows(
        query=2 * slices(num_queries, num_kv_heads * group, head_size),
        key=slices(num_keys, num_kv_heads, head_size),
        value=slices(num_keys, num_kv_heads, value_head_size),
        cu_seqlens_q=bounds(0),
        cu_seqlens_k=bounds(1),
        causal=causal,
    )


COUNTS = st.sampled_from([0, 1, 1, 2, 5, 16, 17, 63, 64, 65, 130])


@st.composite
def any_rows(draw: st.DrawFn) -> Rows:
    causal = draw(st.booleans())
    rows = draw(st.lists(st.tuples(COUNTS, COUNTS), max_size=5))
    if causal:
        rows = [(new, new + more) if more else (new, 0) for new, more in rows]
    batch = make_rows(
        rows,
        num_kv_heads=draw(st.integers(1, 3)),
        group=draw(st.sampled_from([1, 2, 4, 7])),
        head_size=draw(st.sampled_from([1, 8, 20, 64, 192])),
        value_head_size=draw(st.sampled_from([1, 16, 19, 128])),
        dtype=draw(st.sampled_from(DTYPES)),
        causal=causal,
        padding=draw(st.sampled_from([0, 2])),
    )
    return replace(batch, scoring=draw(st.just(PLAIN) | scorings(batch.query.shape[1])))


@pytest.fixture(scope="module")
def native() -> NativeKernels:
    found = native_kernels()
    if not isinstance(found, NativeKernels):
        pytest.skip(found.reason)
    return found


def kernels(native: NativeKernels) -> dict[str, VarlenAttention]:
    return {
        "native": native.varlen_attention,
        "portable": varlen.varlen_attention,
        "reference": reference.varlen_attention,
    }


def assert_near_exact(batch: Rows, kernel: VarlenAttention) -> None:
    oracle = reference.varlen_attention
    found = compare(batch.run(kernel), batch.run(oracle), batch.wide().run(oracle))
    assert found.passed, str(found)
    exact = batch.wide().sums(oracle)
    blind = exact.isinf()
    sums = batch.sums(kernel)
    assert torch.equal(sums == -math.inf, blind)
    found = compare(
        sums.masked_fill(blind, 0.0), batch.sums(oracle).masked_fill(blind, 0.0), exact.masked_fill(blind, 0.0)
    )
    assert found.passed, f"log-sum-exps: {found}"


@given(batch=any_rows())
def test_native_is_near_exact(native: NativeKernels, batch: Rows) -> None:
    assert_near_exact(batch, native.varlen_attention)


@given(batch=any_rows())
def test_portable_is_near_exact(batch: Rows) -> None:
    assert_near_exact(batch, varlen.varlen_attention)


@pytest.mark.parametrize("causal", [True, False])
def test_reference_equals_dense_attention(causal: bool) -> None:
    batch = make_rows([(3, 3), (2, 2)], causal=causal)
    result = batch.run(reference.varlen_attention)
    for row in (slice(0, 3), slice(3, 5)):
        dense = torch.nn.functional.scaled_dot_product_attention(
            batch.query[row].transpose(0, 1)[None],
            batch.key[row].transpose(0, 1)[None],
            batch.value[row].transpose(0, 1)[None],
            is_causal=causal,
            enable_gqa=True,
        )
        torch.testing.assert_close(result[row], dense[0].transpose(0, 1))


@pytest.mark.parametrize("name", ["native", "portable", "reference"])
def test_the_last_query_sees_the_last_key(native: NativeKernels, name: str) -> None:
    kernel = kernels(native)[name]
    batch = make_rows([(2, 5)])
    sees_all = replace(batch, query=batch.query[1:], cu_seqlens_q=torch.tensor([0, 1], dtype=torch.int32), causal=False)
    torch.testing.assert_close(batch.run(kernel)[1:], sees_all.run(kernel))
    all_but_one = replace(
        batch,
        query=batch.query[:1],
        cu_seqlens_q=torch.tensor([0, 1], dtype=torch.int32),
        cu_seqlens_k=torch.tensor([0, 4], dtype=torch.int32),
        causal=False,
    )
    torch.testing.assert_close(batch.run(kernel)[:1], all_but_one.run(kernel))


GOOD = make_rows([(2, 4), (3, 3)])


def int32(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


@pytest.mark.parametrize(
    ("batch", "error", "says"),
    [
        (replace(GOOD, query=GOOD.query[..., :15]), ValueError, "query has head_size 15 and key 16"),
        (replace(GOOD, query=GOOD.query[:, :3]), ValueError, "num_heads 3 is not a multiple of num_kv_heads 2"),
        (replace(GOOD, value=GOOD.value[:5]), ValueError, "have the same tokens and heads"),
        (replace(GOOD, value=GOOD.value.half()), TypeError, "value torch.float16; they must be the same"),
        (replace(GOOD, cu_seqlens_k=GOOD.cu_seqlens_k.long()), TypeError, "cu_seqlens_k is torch.int64"),
        (replace(GOOD, cu_seqlens_k=int32(0, 4)), ValueError, "bounds 2 rows and cu_seqlens_k 1"),
        (replace(GOOD, cu_seqlens_k=int32(0, 4, 9)), ValueError, "row 1 is keys 4 to 9, of 7 keys"),
        (replace(GOOD, cu_seqlens_k=int32(-1, 4, 7)), ValueError, "row 0 is keys -1 to 4, of 7 keys"),
        (replace(GOOD, cu_seqlens_k=int32(0, 7, 4)), ValueError, "row 1 is keys 7 to 4, of 7 keys"),
        (replace(GOOD, cu_seqlens_k=int32(0, 1, 4)), ValueError, "row 0 has 2 (queries and 1 keys|new tokens)"),
        (replace(GOOD, cu_seqlens_q=int32(0, 2, 6)), ValueError, "row 1 is tokens 2 to 6, of 5 tokens"),
        (replace(GOOD, cu_seqlens_q=int32(0, 6, 5)), ValueError, "row 0 is tokens 0 to 6|row 1 is tokens 6 to 5"),
        (replace(GOOD, scoring=make_scoring(3, sinks=True)), ValueError, "sinks has 3 entries for 4 query heads"),
    ],
)
@pytest.mark.parametrize("name", ["native", "portable", "reference"])
def test_bad_input_is_named(native: NativeKernels, name: str, batch: Rows, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        batch.run(kernels(native)[name])


def test_native_refuses_keys_where_there_are_none(native: NativeKernels) -> None:
    empty = replace(GOOD, key=GOOD.key[:0], value=GOOD.value[:0])
    with pytest.raises(ValueError, match="row 0 is keys 0 to 4, of 0 keys"):
        empty.run(native.varlen_attention)
