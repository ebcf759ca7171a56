"""The Triton kernels, compiled for devices that need not be there: what the interpreter cannot say of them.

Run by test_triton.py in a process of its own, in which kernels are not interpreted.
"""

from __future__ import annotations

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from genericbuilders.kernels.triton.attention import Tiles
from genericbuilders.kernels.triton.decode import attend_splits, merge_splits
from genericbuilders.kernels.triton.prefill import attend_rows

CUDA = torch.device("cuda")
TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
# Bytes of shared memory that a program may have.
MOST_SHARED = {80: 163 * 1024, 90: 227 * 1024}


def compiled(
    kernel: triton.JITFunction[..., None], dtype: torch.dtype, settings: dict[str, int], capability: int, warps: int
) -> str:
    """The kernel's machine code as text, within the device's limits."""
    kinds: dict[str, str] = {}
    for name in kernel.arg_names:
        if name in settings:
            kinds[name] = "constexpr"
        elif name in ("query_ptr", "key_ptr", "value_ptr", "out_ptr"):
            kinds[name] = f"*{TYPES[dtype]}"
        elif name in ("slope_ptr", "sink_ptr", "lse_ptr", "part_ptr", "sum_ptr"):
            kinds[name] = "*fp32"
        else:
            kinds[name] = "*i32" if name.endswith("_ptr") else "fp32" if name in ("scale", "soft_cap") else "i32"
    # As a launch finds out: pointers and strides of tensors in blocks of 16 tokens.
    aligned = [
        place
        for place, name in enumerate(kernel.arg_names)
        if name.endswith(("_ptr", "token_stride", "block_stride", "head_stride"))
    ]
    source = ASTSource(
        kernel,
        kinds,
        {(kernel.arg_names.index(name),): value for name, value in settings.items()},
        {(place,): [["tt.divisibility", 16]] for place in aligned},
    )
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})
    assert made.metadata.shared <= MOST_SHARED[capability]
    return made.asm["ptx"]


def sizes(head_size: int, keys: int, wide: bool) -> dict[str, int]:
    padded = 1 << (head_size - 1).bit_length()
    return {
        "HEAD": head_size,
        "HEAD_PADDED": padded,
        "VALUE": head_size,
        "VALUE_PADDED": padded,
        "BLOCK_SIZE": 16,
        "KEYS": keys,
        "PAGED": True,
        "WIDE": wide,
    }


HALF = [(90, torch.bfloat16, 128), (90, torch.float16, 80), (80, torch.bfloat16, 256)]


@pytest.mark.parametrize(("capability", "dtype", "head_size"), [*HALF, (90, torch.float32, 256)])
def test_decodes_compile(capability: int, dtype: torch.dtype, head_size: int) -> None:
    tiles, wide = Tiles.on(CUDA, dtype, head_size), dtype == torch.float32
    rules = {"GROUP": 4, "ROWS": 16, "SPLITS": 8, "SOFT_CAP": True, "ALIBI": True}
    code = compiled(attend_splits, dtype, sizes(head_size, tiles.decode_keys, wide) | rules, capability, 4)
    # Keys are on their way while others are multiplied, and halves by matrix units.
    assert "cp.async" in code
    assert ("mma" in code) == (not wide)


@pytest.mark.parametrize(
    ("capability", "dtype", "head_size", "rules"),
    [*((*one, False) for one in HALF), (90, torch.float32, 64, False), (90, torch.bfloat16, 128, True)],
)
def test_rows_compile(capability: int, dtype: torch.dtype, head_size: int, rules: bool) -> None:
    tiles, wide = Tiles.on(CUDA, dtype, head_size), dtype == torch.float32
    asked = dict.fromkeys(("WINDOW", "SOFT_CAP", "ALIBI", "SINKS", "LSE"), rules)
    shape = {"GROUP": 4, "ROWS": tiles.prefill_rows, "TOKENS": tiles.prefill_rows // 4, "CAUSAL": True}
    settings = sizes(head_size, tiles.prefill_keys, wide) | asked | shape
    code = compiled(attend_rows, dtype, settings, capability, tiles.warps)
    assert "cp.async" in code
    assert ("mma" in code) == (not wide)


def test_merging_compiles() -> None:
    settings = {"SPLITS": 128, "VALUE": 80, "VALUE_PADDED": 128, "SINKS": True, "LSE": True}
    assert "ld.global" in compiled(merge_splits, torch.bfloat16, settings, 90, 4)
