from __future__ import annotations

import pytest
import torch

from genericbuilders.config import EngineConfig
from genericbuilders.specs import MambaCacheMode, MambaSpec

CONFIG = EngineConfig(max_model_len=100)
SHAPES = ((3, 8), (4, 16, 2))
DTYPES = (torch.bfloat16, torch.float32)


def state(
    block_size: int = 32,
    *,
    mode: MambaCacheMode = "none",
    speculative: int = 0,
    page_size_padded: int | None = None,
) -> MambaSpec:
    return MambaSpec(
        block_size,
        SHAPES,
        DTYPES,
        page_size_padded=page_size_padded,
        mamba_cache_mode=mode,
        num_speculative_blocks=speculative,
    )


def test_page_is_one_state_whatever_the_block() -> None:
    # 24 x 2 bytes + 128 x 4 bytes
    assert state().page_size_bytes == 560
    assert state().copy_with_new_block_size(7).page_size_bytes == 560
    assert state(page_size_padded=1_024).page_size_bytes == 1_024
    assert state(page_size_padded=1_024).copy_with_new_block_size(64).page_size_bytes == 1_024


@pytest.mark.parametrize(
    ("mode", "resident", "columns"),
    # 100 tokens are 4 blocks of 32; 40 tokens are 2
    [("none", 1, 1), ("align", 2, 2), ("all", 4, 2)],
)
def test_memory_by_mode(mode: MambaCacheMode, resident: int, columns: int) -> None:
    assert state(mode=mode).max_memory_usage_bytes(CONFIG) == resident * 560
    assert state(mode=mode, speculative=3).max_memory_usage_bytes(CONFIG) == (resident + 3) * 560
    assert state(mode=mode).max_num_blocks_per_req(CONFIG, 40) == columns
    assert state(mode=mode, speculative=3).max_num_blocks_per_req(CONFIG, 40) == columns + 3


def test_lists_become_tuples() -> None:
    shapes: list[tuple[int, ...]] = [torch.Size([3, 8]), (4, 16, 2)]
    spec = MambaSpec(32, tuple(shapes), DTYPES)
    assert spec == state()
    assert hash(spec) == hash(state())


def test_state_spec_has_no_dtype_and_no_heads() -> None:
    for name in ("dtype", "num_kv_heads", "head_size"):
        assert not hasattr(state(), name)


def test_fields_are_checked() -> None:
    with pytest.raises(ValueError, match="2 shapes and 1 dtypes"):
        MambaSpec(32, SHAPES, (torch.float32,))
    with pytest.raises(ValueError, match="0 shapes and 0 dtypes"):
        MambaSpec(32, (), ())
    with pytest.raises(ValueError, match="every dimension must be at least 1"):
        MambaSpec(32, ((3, 0),), (torch.float32,))
    with pytest.raises(ValueError, match="num_speculative_blocks is -1 blocks"):
        state(speculative=-1)
    with pytest.raises(ValueError, match="page_size_padded is 559 bytes; the state takes 560 bytes"):
        state(page_size_padded=559)
    with pytest.raises(TypeError, match=r"MambaSpec: block_size is 8.5; it must be an integer"):
        state(block_size=8.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the run-time check
    with pytest.raises(ValueError, match="block_size is 0 tokens"):
        state(0)
    with pytest.raises(ValueError, match="mamba_cache_mode is 'some'; it must be one of none, align, all"):
        MambaSpec(32, SHAPES, DTYPES, mamba_cache_mode="some")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the run-time check
