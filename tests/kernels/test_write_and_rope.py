"""Writing to the cache, with and without rotary embedding: every implementation against the reference."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.kernels import reference
from genericbuilders.kernels.select import KERNEL_NAMES, AttentionKernels, find_kernels
from genericbuilders.kernels.tolerance import compare
from genericbuilders.rotary import Rotary, apply_rotary

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Tokens:
    """New tokens as slices of one fused projection, a cache, and slots with garbage behind them."""

    query: Tensor
    key: Tensor
    value: Tensor
    cos: Tensor
    sin: Tensor
    pool: Tensor
    slot_mapping: Tensor

    def caches(self, pool: Tensor) -> tuple[Tensor, Tensor]:
        views = pool.transpose(1, 2)
        return views[..., : self.key.shape[2]], views[..., self.key.shape[2] :]


def kernels_called(name: str, dtype: torch.dtype) -> AttentionKernels:
    found = find_kernels(name, CPU, dtype)
    if not isinstance(found, AttentionKernels):
        pytest.skip(found.reason)
    return found


@st.composite
def tokens(draw: st.DrawFn) -> Tokens:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 9)))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    num_tokens = draw(st.sampled_from([0, 1, 2, 33, 200]))
    block_size = draw(st.sampled_from([1, 7, 16, 64]))
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    head_size = draw(st.sampled_from([2, 6, 16, 20, 64, 80, 96, 128]))
    value_head_size = draw(st.sampled_from([head_size, 3, 24]))
    rotary_dim = 2 * draw(st.integers(1, head_size // 2))
    num_heads = kv_heads * group
    wide = max(head_size, value_head_size)
    fused = torch.randn(num_tokens, num_heads + 2 * kv_heads, wide + 1, generator=generator).to(dtype)
    num_blocks = -(-max(num_tokens, 1) // block_size) + 2
    slots = torch.randperm(num_blocks * block_size, generator=generator)[:num_tokens]
    slots[torch.rand(num_tokens, generator=generator) < 0.2] = -1
    half = torch.randn(2, num_tokens, rotary_dim // 2, generator=generator)
    angles = torch.cat((half, half), -1).to(draw(st.sampled_from([dtype, torch.float32])))
    return Tokens(
        query=fused[:, :num_heads, :head_size],
        key=fused[:, num_heads : num_heads + kv_heads, :head_size],
        value=fused[:, num_heads + kv_heads :, :value_head_size],
        cos=angles[0],
        sin=angles[1],
        pool=torch.randn(num_blocks, kv_heads, block_size, head_size + value_head_size, generator=generator).to(dtype),
        slot_mapping=torch.cat((slots, torch.full((5,), 2**40))),
    )


@pytest.mark.parametrize("name", KERNEL_NAMES)
@given(batch=tokens())
def test_write_is_exact(name: str, batch: Tokens) -> None:
    kernels = kernels_called(name, batch.key.dtype)
    expected, written = batch.pool.clone(), batch.pool.clone()
    for token, slot in enumerate(batch.slot_mapping[: batch.key.shape[0]]):
        if slot >= 0:
            block, offset = divmod(int(slot), batch.pool.shape[2])
            expected[block, :, offset] = torch.cat((batch.key[token], batch.value[token]), -1)
    kernels.write_kv_cache(batch.key, batch.value, *batch.caches(written), batch.slot_mapping)
    assert torch.equal(written, expected)


@pytest.mark.parametrize("name", ["native", "portable"])
@pytest.mark.parametrize("in_place", [True, False])
@given(batch=tokens())
def test_rope_is_near_exact(name: str, in_place: bool, batch: Tokens) -> None:
    kernels = kernels_called(name, batch.key.dtype)
    rotary = Rotary(batch.cos, batch.sin)
    exact = Rotary(batch.cos.double(), batch.sin.double())
    query = batch.query.clone() if in_place else batch.query
    out = None if in_place else torch.empty_like(batch.query)
    written = batch.pool.clone()
    result = kernels.rope_and_cache(
        query, batch.key, batch.value, *rotary, *batch.caches(written), batch.slot_mapping, out=out
    )
    assert result is (query if in_place else out)
    turned = apply_rotary(batch.query, rotary).to(query.dtype)
    assert (found := compare(result, turned, apply_rotary(batch.query.double(), exact))).passed, str(found)

    by_reference, by_exact = batch.pool.clone(), batch.pool.double()
    turned = apply_rotary(batch.key, rotary).to(query.dtype)
    reference.write_kv_cache(turned, batch.value, *batch.caches(by_reference), batch.slot_mapping)
    turned = apply_rotary(batch.key.double(), exact)
    reference.write_kv_cache(turned, batch.value, *batch.caches(by_exact), batch.slot_mapping)
    assert (found := compare(written, by_reference, by_exact)).passed, str(found)


def native_kernels_or_skip() -> AttentionKernels:
    return kernels_called("native", torch.float32)


def test_native_refuses_a_slot_outside_the_cache() -> None:
    cache = torch.zeros(4, 16, 2, 8)
    heads = torch.zeros(3, 2, 8)
    with pytest.raises(ValueError, match=r"slot_mapping\[1\] is 64; the cache has slots 0 to 63"):
        native_kernels_or_skip().write_kv_cache(heads, heads, cache, cache.clone(), torch.tensor([0, 64, -1]))


@pytest.mark.parametrize(
    ("key", "slots", "error", "says"),
    [
        (torch.zeros(3, 2, 9), torch.zeros(3, dtype=torch.int64), ValueError, "another layer"),
        (torch.zeros(3, 1, 8), torch.zeros(3, dtype=torch.int64), ValueError, "another layer"),
        (torch.zeros(3, 2, 8).half(), torch.zeros(3, dtype=torch.int64), TypeError, "key is torch.float16"),
        (torch.zeros(3, 2, 16)[..., ::2], torch.zeros(3, dtype=torch.int64), ValueError, "stride 2"),
        (torch.zeros(3, 2, 8), torch.zeros(2, dtype=torch.int64), ValueError, "2 entries for 3 tokens"),
        (torch.zeros(3, 2, 8), torch.zeros(3, dtype=torch.int32), TypeError, "must be torch.int64"),
        (torch.zeros(3, 2, 8).double(), torch.zeros(3, dtype=torch.int64), TypeError, "key is torch.float64"),
    ],
)
def test_native_refuses_what_does_not_fit(key: Tensor, slots: Tensor, error: type[Exception], says: str) -> None:
    kernels = native_kernels_or_skip()
    cache, value, angles = torch.zeros(4, 16, 2, 8), torch.zeros(3, 2, 8), torch.zeros(3, 8)
    with pytest.raises(error, match=says):
        kernels.write_kv_cache(key, value, cache, cache, slots)
    with pytest.raises(error, match=says):
        kernels.rope_and_cache(torch.zeros(3, 4, 8), key, value, angles, angles, cache, cache, slots)


@pytest.mark.parametrize(
    ("cos", "sin", "error", "says"),
    [
        (torch.zeros(2, 8), torch.zeros(2, 8), ValueError, "a row for each"),
        (torch.zeros(3, 10), torch.zeros(3, 10), ValueError, "rotary_dim 10"),
        (torch.zeros(3, 5), torch.zeros(3, 5), ValueError, "rotary_dim 5"),
        (torch.zeros(3, 8), torch.zeros(3, 6), ValueError, "must have a row"),
        (torch.zeros(3, 8).half(), torch.zeros(3, 8).half(), TypeError, "torch.float16"),
    ],
)
def test_native_refuses_angles_that_do_not_fit(cos: Tensor, sin: Tensor, error: type[Exception], says: str) -> None:
    cache, heads = torch.zeros(4, 16, 2, 8), torch.zeros(3, 2, 8)
    slots = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(error, match=says):
        native_kernels_or_skip().rope_and_cache(heads.clone(), heads, heads, cos, sin, cache, cache, slots)
