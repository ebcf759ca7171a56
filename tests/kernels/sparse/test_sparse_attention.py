"""Attention over slots: the batched form against the reference in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.kernels.sparse import portable, reference
from genericbuilders.kernels.sparse.protocols import SparseAttention
from genericbuilders.kernels.tolerance import compare
from tests.kernels.paged_batches import DTYPES

KERNELS: list[SparseAttention] = [reference.sparse_attention, portable.sparse_attention]


def make_inputs(
    num_tokens: int, num_keys: int, *, dtype: torch.dtype = torch.float32, heads: int = 3, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, a cache in padded pages of which only what is selected is no NaN, and slots with holes anywhere."""
    generator = torch.Generator().manual_seed(seed)
    pages = torch.full((9, 4 * 10 + 6), math.nan)
    cache = pages.as_strided((9, 4, 10), (46, 10, 1)).to(dtype)
    slots = torch.stack(
        [torch.randperm(36, generator=generator)[:num_keys] for _ in range(num_tokens)]
        or [torch.zeros(num_keys, dtype=torch.int64)]
    )[:num_tokens]
    slots[torch.rand(slots.shape, generator=generator) < 0.4] = -1
    for slot in map(int, slots[slots >= 0]):
        cache[slot // 4, slot % 4] = torch.randn(10, generator=generator).to(dtype)
    return torch.randn(num_tokens, heads, 10, generator=generator).to(dtype), cache, slots


@pytest.mark.parametrize("dtype", DTYPES)
@given(
    num_tokens=st.integers(0, 6),
    num_keys=st.integers(0, 20),
    heads=st.sampled_from([1, 3]),
    value_size=st.sampled_from([1, 8, 10]),
    seed=st.integers(0, 99),
)
def test_it_gives_what_the_reference_gives(
    dtype: torch.dtype, num_tokens: int, num_keys: int, heads: int, value_size: int, seed: int
) -> None:
    query, cache, slots = make_inputs(num_tokens, num_keys, dtype=dtype, heads=heads, seed=seed)

    def run(kernel: SparseAttention, query: Tensor, cache: Tensor) -> Tensor:
        return kernel(query, cache, slots, value_size=value_size, scale=0.3)

    comparison = compare(
        run(portable.sparse_attention, query, cache),
        run(reference.sparse_attention, query, cache),
        run(reference.sparse_attention, query.double(), cache.double()),
    )
    assert comparison.passed, comparison


@pytest.mark.parametrize("kernel", KERNELS)
def test_by_definition(kernel: SparseAttention) -> None:
    """Two keys of scores 0 and ln 3: the values weigh a quarter and three quarters."""
    cache = torch.tensor([[[math.nan, math.nan], [4.0, 0.0]], [[8.0, math.log(3)], [math.nan, math.nan]]])
    query = torch.tensor([[[0.0, 2.0]], [[0.0, 2.0]], [[0.0, 2.0]]])
    slots = torch.tensor([[-1, 2, 1], [1, -1, -1], [-1, -1, -1]])
    out = kernel(query, cache, slots, value_size=1, scale=0.5)
    torch.testing.assert_close(out, torch.tensor([[[7.0]], [[4.0]], [[0.0]]]))


@pytest.mark.parametrize("elements", [1, 200])
def test_it_is_the_same_in_small_chunks(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    query, cache, slots = make_inputs(9, 7)
    whole = portable.sparse_attention(query, cache, slots, value_size=8, scale=0.3)
    monkeypatch.setattr(portable, "CHUNK_ELEMENTS", elements)
    torch.testing.assert_close(portable.sparse_attention(query, cache, slots, value_size=8, scale=0.3), whole)


@pytest.mark.parametrize("kernel", KERNELS)
def test_nan_that_was_selected_is_not_hidden(kernel: SparseAttention) -> None:
    query, cache, _ = make_inputs(2, 0)
    cache[2] = 1.0
    slots = torch.tensor([[8, 3], [8, -1]])
    out = kernel(query, cache, slots, value_size=8, scale=0.3)
    assert bool(out[0].isnan().all())
    assert not bool(out[1].isnan().any())


@pytest.mark.parametrize("kernel", KERNELS)
def test_bad_input_is_refused(kernel: SparseAttention) -> None:
    query, cache, slots = make_inputs(2, 3)

    def refused(kind: type[Exception], match: str, query: Tensor, slots: Tensor, value_size: int = 8) -> None:
        with pytest.raises(kind, match=match):
            kernel(query, cache, slots, value_size=value_size, scale=0.3)

    refused(ValueError, "query has head_size 9 and cache 10", query[..., :9], slots)
    refused(TypeError, "query is torch.bfloat16 and cache torch.float32", query.bfloat16(), slots)
    refused(ValueError, r"slots is torch.int64 \(1, 3\); it must be torch.int64 \[2, num_keys\]", query, slots[:1])
    refused(ValueError, r"slots is torch.int32 \(2, 3\)", query, slots.int())
    refused(ValueError, "slots reach from -1 to 36; the cache has 9 blocks of 4", query, torch.tensor([[36], [-1]]))
    refused(ValueError, "slots reach from -2 to 0", query, torch.tensor([[-2], [0]]))
    refused(ValueError, "value_size is 11; a value is the front of a vector of 10", query, slots, 11)
    refused(ValueError, "value_size is 0", query, slots, 0)
