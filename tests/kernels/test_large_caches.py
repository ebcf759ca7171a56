"""Caches of more than 2^31 elements: quantised ones, and those that sparse attention reads."""

from __future__ import annotations

import pytest
import torch
from quantised_caches import MODES, make_codec
from torch import Tensor

from genericbuilders.kernels.quant.select import select_quantised_kernels
from genericbuilders.kernels.sparse.portable import select_topk, sparse_attention
from genericbuilders.specs import KVQuantMode

CPU = torch.device("cpu")
BLOCKS = 3


def far(sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A pool of more than 2^31 elements in blocks of ``sizes``; only what is written to becomes memory."""
    try:
        return torch.empty(2**31 // torch.Size(sizes).numel() + BLOCKS + 1, *sizes, dtype=dtype)
    except RuntimeError:
        pytest.skip("not enough address space")


@pytest.mark.parametrize("name", ["native", "portable"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_the_last_blocks_of_a_quantised_cache_are_written_and_read(mode: KVQuantMode, name: str) -> None:
    codec, kernels = make_codec(mode, 64), select_quantised_kernels(CPU, torch.float32, name)
    pool, near = far((2, 16, codec.slot.slot_bytes), torch.uint8), torch.zeros(BLOCKS, 2, 16, codec.slot.slot_bytes)
    first, small = len(pool) - BLOCKS, near.byte()
    generator = torch.Generator().manual_seed(0)
    key, value = torch.randn(2, 40, 2, 64, generator=generator).unbind()
    query = torch.randn(7, 4, 64, generator=generator)
    out: list[Tensor] = []
    for cache, block in ((small, 0), (pool, first)):
        kernels.write_slots(key, value, cache, torch.arange(40) + block * 16, codec)
        out.append(
            kernels.paged_attention(
                query,
                cache,
                codec,
                query_start_loc=torch.tensor([0, 7], dtype=torch.int32),
                seq_lens=torch.tensor([40], dtype=torch.int32),
                block_table=torch.arange(block, block + BLOCKS, dtype=torch.int32)[None],
                scale=0.125,
                causal=True,
            )
        )
    assert out[0].any()
    assert torch.equal(out[0], out[1])


def test_the_last_blocks_are_scored_and_attended_over() -> None:
    pool, small = far((16, 64), torch.float16), torch.empty(BLOCKS, 16, 64, dtype=torch.float16)
    first, generator = len(pool) - BLOCKS, torch.Generator().manual_seed(0)
    small.copy_(torch.randn(small.shape, generator=generator))
    pool[first:] = small
    query = torch.randn(2, 4, 64, generator=generator).half()
    picked: list[Tensor] = []
    attended: list[Tensor] = []
    for cache, block in ((small, 0), (pool, first)):
        table = torch.arange(block, block + BLOCKS, dtype=torch.int32)
        starts, lengths = torch.tensor([0, 2], dtype=torch.int32), torch.tensor([40], dtype=torch.int32)
        positions = select_topk(
            query,
            torch.ones(2, 4),
            cache,
            query_start_loc=starts,
            seq_lens=lengths,
            block_table=table[None],
            scale=1.0,
            topk=5,
        )
        slots = table[positions // 16].long() * 16 + positions % 16
        picked.append(positions)
        attended.append(sparse_attention(query, cache, slots, value_size=48, scale=0.125))
    assert torch.equal(picked[0], picked[1])
    assert torch.equal(attended[0], attended[1])
