"""Every implementation of paged attention against the reference in float64, over random batches."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from torch import Tensor

from genericbuilders.kernels import portable, reference
from genericbuilders.kernels.native import NativeKernels, native_kernels
from genericbuilders.kernels.protocols import PagedAttention
from tests.kernels.paged_batches import DTYPES, Batch, assert_near_exact, batches, make_batch


@pytest.fixture(scope="module")
def native() -> NativeKernels:
    found = native_kernels()
    if not isinstance(found, NativeKernels):
        pytest.skip(found.reason)
    return found


@given(batches(plain=True))
def test_native_is_near_exact(native: NativeKernels, batch: Batch) -> None:
    assert_near_exact(batch, native.paged_attention)


@given(batches(plain=True))
def test_portable_is_near_exact(batch: Batch) -> None:
    assert_near_exact(batch, portable.paged_attention)


def test_portable_decode_with_bounds_reads_nothing_back() -> None:
    batch = make_batch([(1, 20), (0, 0), (1, 0), (1, 300)], padding_tokens=2)
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
        max_seq_len=304,
    )
    torch.testing.assert_close(bounded, batch.run(reference.paged_attention))


@pytest.mark.parametrize("causal", [True, False])
def test_portable_in_small_chunks(monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    monkeypatch.setattr(portable, "CHUNK_ELEMENTS", 1)
    monkeypatch.setattr(portable, "MAX_SEGMENT", 5)
    batch = make_batch([(17, 3), (1, 40), (0, 5), (12, 0), (1, 0)], causal=causal, padding_tokens=1)
    assert_near_exact(batch, portable.paged_attention)


@given(batches(plain=True))
def test_reference_ignores_padding_and_empty_rows(batch: Batch) -> None:
    result = batch.run(reference.paged_attention)
    assert result.shape == (*batch.query.shape[:2], batch.value_cache.shape[3])
    assert not result.isnan().any()
    assert not result[int(batch.query_start_loc[-1]) :].any()


def test_reference_equals_dense_attention() -> None:
    batch = make_batch([(9, 0)], num_kv_heads=2, group=3, block_size=4)
    keys = batch.key_cache[batch.block_table[0, :3].long()].flatten(0, 1)[:9]
    values = batch.value_cache[batch.block_table[0, :3].long()].flatten(0, 1)[:9]
    dense = torch.nn.functional.scaled_dot_product_attention(
        batch.query.transpose(0, 1)[None],
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        is_causal=True,
        enable_gqa=True,
    )
    torch.testing.assert_close(batch.run(reference.paged_attention), dense[0].transpose(0, 1))


def few_long_and_many(dtype: torch.dtype = torch.float32, *, causal: bool = True) -> Batch:
    rows = [(1, 0), (1, 1500), (0, 0), (40, 200), (1, 255), (1, 256), (33, 0), (1, 90), (2, 700)]
    return make_batch(rows, num_kv_heads=2, group=3, head_size=40, dtype=dtype, causal=causal)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [True, False])
def test_native_does_not_depend_on_the_number_of_threads(
    native: NativeKernels, dtype: torch.dtype, causal: bool
) -> None:
    before = torch.get_num_threads()
    mixed = few_long_and_many(dtype, causal=causal)
    alone = make_batch([(1, 3000)], num_kv_heads=1, group=4, head_size=32, dtype=dtype, causal=causal)
    try:
        for batch in (mixed, alone):
            results: list[Tensor] = []
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                results.append(batch.run(native.paged_attention))
            assert torch.equal(results[0], results[1])
            assert torch.equal(results[0], results[2])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("causal", [True, False])
def test_native_rows_do_not_depend_on_each_other(native: NativeKernels, causal: bool) -> None:
    batch = few_long_and_many(causal=causal)
    whole = batch.run(native.paged_attention)
    for row in range(batch.query_start_loc.shape[0] - 1):
        start, end = int(batch.query_start_loc[row]), int(batch.query_start_loc[row + 1])
        alone = replace(
            batch,
            query=batch.query[start:end],
            query_start_loc=torch.tensor([0, end - start], dtype=torch.int32),
            seq_lens=batch.seq_lens[row : row + 1],
            block_table=batch.block_table[row : row + 1],
        )
        assert torch.equal(alone.run(native.paged_attention), whole[start:end]), row


def test_native_prefill_does_not_depend_on_chunks(native: NativeKernels) -> None:
    whole = make_batch([(150, 0)], head_size=24)
    result = whole.run(native.paged_attention)
    for first, last in ((0, 37), (37, 39), (39, 150)):
        chunk = replace(
            whole,
            query=whole.query[first:last],
            query_start_loc=torch.tensor([0, last - first], dtype=torch.int32),
            seq_lens=torch.tensor([last], dtype=torch.int32),
        )
        assert torch.equal(chunk.run(native.paged_attention), result[first:last])


def test_native_writes_to_a_strided_out(native: NativeKernels) -> None:
    batch = make_batch([(3, 4), (1, 9)], padding_tokens=2)
    wide = torch.full((batch.query.shape[0], 5, 70), 7.0)
    out = wide[:, 1:3, 2:66]
    strided = native.paged_attention(
        batch.query,
        batch.key_cache,
        batch.value_cache,
        query_start_loc=batch.query_start_loc,
        seq_lens=batch.seq_lens,
        block_table=batch.block_table,
        scale=0.125,
        causal=True,
        out=out,
    )
    assert strided is out
    assert torch.equal(out, batch.run(native.paged_attention))
    assert (wide[:, 0] == 7).all()
    assert (wide[:, 1:3, :2] == 7).all()
    assert (wide[:, 1:3, 66:] == 7).all()


GOOD = make_batch([(1, 20), (3, 30)])


@pytest.mark.parametrize(
    ("batch", "error", "says"),
    [
        (replace(GOOD, query=GOOD.query[..., :60]), ValueError, "head_size 60 and the cache 64"),
        (replace(GOOD, query=GOOD.query.half()), TypeError, "query is torch.float16 and the cache torch.float32"),
        (replace(GOOD, query=GOOD.query.mT.contiguous().mT), ValueError, "query's last axis has stride"),
        (
            replace(GOOD, block_table=GOOD.block_table[:, :2]),
            ValueError,
            "2 columns, and .* need 3|blocks of 16 needs 3",
        ),
        (replace(GOOD, value_cache=GOOD.value_cache[:, :8]), ValueError, "must agree in"),
    ],
)
@pytest.mark.parametrize("name", ["native", "portable", "reference"])
def test_bad_input_is_named(native: NativeKernels, name: str, batch: Batch, error: type[Exception], says: str) -> None:
    kernels: dict[str, PagedAttention] = {
        "native": native.paged_attention,
        "portable": portable.paged_attention,
        "reference": reference.paged_attention,
    }
    with pytest.raises(error, match=says):
        batch.run(kernels[name])


@pytest.mark.parametrize(
    ("batch", "error", "says"),
    [
        (replace(GOOD, block_table=GOOD.block_table + 9), ValueError, "the cache has blocks 0 to"),
        (replace(GOOD, block_table=GOOD.block_table.long()), TypeError, "block_table is torch.int64"),
        (replace(GOOD, seq_lens=GOOD.seq_lens[:1]), ValueError, "describes 2 requests, seq_lens 1"),
        (replace(GOOD, query=GOOD.query[:3]), ValueError, "row 1 is tokens 1 to 4, of 3 tokens"),
        (replace(GOOD, seq_lens=GOOD.seq_lens - 31), ValueError, "row 0 has 1 new tokens but seq_lens says -10"),
        (replace(GOOD, query=GOOD.query.to("meta")), ValueError, "query is on meta"),
    ],
)
def test_native_names_bad_indices(native: NativeKernels, batch: Batch, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        batch.run(native.paged_attention)
