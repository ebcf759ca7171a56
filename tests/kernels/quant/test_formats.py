"""The bytes of a slot: their numbers, what tells modes apart, and which head sizes a mode lacks."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TypedDict

import pytest

from genericbuilders.backends.fp8_kv import Fp8Builder
from genericbuilders.backends.int8_kv import Int8Builder
from genericbuilders.backends.quantised import quantised_backend
from genericbuilders.backends.quantised_base import QuantisedBuilder
from genericbuilders.backends.turboquant import TurboQuantBuilder
from genericbuilders.kernels.quant.formats import FORMATS, format_of_width, slot_format
from genericbuilders.specs import KVQuantMode

TURNED = [mode for mode in FORMATS if mode.name.startswith("TURBOQUANT")]
FAMILIES: list[type[QuantisedBuilder]] = [Fp8Builder, Int8Builder, TurboQuantBuilder]


@pytest.mark.parametrize(
    ("mode", "slot_bytes"),
    [
        (KVQuantMode.FP8_PER_TENSOR, 128 + 128),
        (KVQuantMode.FP8_PER_TOKEN_HEAD, 128 + 4 + 128 + 4),
        (KVQuantMode.INT8_PER_TOKEN_HEAD, 128 + 4 + 128 + 4),
        (KVQuantMode.TURBOQUANT_K8V4, 128 + 64 + 4),
        (KVQuantMode.TURBOQUANT_4BIT_NC, 64 + 2 + 64 + 4),
        (KVQuantMode.TURBOQUANT_K3V4_NC, 48 + 2 + 64 + 4),
        (KVQuantMode.TURBOQUANT_3BIT_NC, 48 + 2 + 48 + 4),
        (KVQuantMode.TURBOQUANT_2BIT_NC, 32 + 2 + 32 + 4),
    ],
    ids=lambda value: value.name if isinstance(value, KVQuantMode) else str(value),
)
def test_bytes_for_a_head_of_128(mode: KVQuantMode, slot_bytes: int) -> None:
    assert slot_format(mode, 128).slot_bytes == slot_bytes


def test_bytes_are_even() -> None:
    slot = slot_format(KVQuantMode.TURBOQUANT_K3V4_NC, 24)
    assert (slot.key_bytes, slot.value_bytes, slot.slot_bytes) == (9 + 2, 12 + 4, 28)


@pytest.mark.parametrize(
    ("mode", "slot_bytes"),
    [
        (KVQuantMode.FP8_PER_TENSOR, 63 + 63),
        (KVQuantMode.FP8_PER_TOKEN_HEAD, 63 + 4 + 63 + 4),
        (KVQuantMode.INT8_PER_TOKEN_HEAD, 63 + 4 + 63 + 4),
        (KVQuantMode.TURBOQUANT_K8V4, 63 + 32 + 4 + 1),
        (KVQuantMode.TURBOQUANT_4BIT_NC, 32 + 2 + 32 + 4),
        (KVQuantMode.TURBOQUANT_K3V4_NC, 24 + 2 + 32 + 4),
        (KVQuantMode.TURBOQUANT_3BIT_NC, 24 + 2 + 24 + 4),
        (KVQuantMode.TURBOQUANT_2BIT_NC, 16 + 2 + 16 + 4),
    ],
    ids=lambda value: value.name if isinstance(value, KVQuantMode) else str(value),
)
def test_bytes_for_a_head_of_63(mode: KVQuantMode, slot_bytes: int) -> None:
    assert slot_format(mode, 63).slot_bytes == slot_bytes


@pytest.mark.parametrize("family", FAMILIES)
def test_the_width_of_a_slot_tells_the_modes_of_a_back_end_apart(family: type[QuantisedBuilder]) -> None:
    modes = family.modes()
    for head_size in range(16, 1025):
        for mode in modes:
            width = slot_format(mode, head_size).slot_bytes
            assert format_of_width(modes, head_size, width).mode is mode
            assert sum(slot_format(each, head_size).slot_bytes == width for each in modes) == 1


def test_every_mode_has_one_back_end() -> None:
    assert sorted(mode for family in FAMILIES for mode in family.modes()) == sorted(FORMATS)


def test_a_width_of_no_mode_is_refused() -> None:
    with pytest.raises(ValueError, match=r"slots of the cache have 130 bytes; .*FP8_PER_TENSOR 128.*TOKEN_HEAD 136"):
        format_of_width(Fp8Builder.modes(), 64, 130)


@pytest.mark.parametrize("mode", TURNED, ids=lambda mode: mode.name)
@pytest.mark.parametrize("head_size", [0, 8, 12, 15])
def test_head_sizes_that_a_mode_lacks_are_refused_by_name_and_number(mode: KVQuantMode, head_size: int) -> None:
    with pytest.raises(ValueError, match=rf"mode {mode.name} has no head size {head_size}: .* takes 16 and more"):
        slot_format(mode, head_size)


@pytest.mark.parametrize("mode", set(FORMATS) - set(TURNED), ids=lambda mode: mode.name)
def test_a_byte_an_element_takes_any_head_size(mode: KVQuantMode) -> None:
    assert slot_format(mode, 7).head_size == 7
    with pytest.raises(ValueError, match=rf"mode {mode.name} has no head size 0"):
        slot_format(mode, 0)


def test_modes_that_are_not_served_are_refused_by_name_and_number() -> None:
    with pytest.raises(ValueError, match=r"mode NVFP4 \(5\); there are FP8_PER_TENSOR \(1\), "):
        slot_format(KVQuantMode.NVFP4, 64)


def test_the_page_of_back_ends_says_these_bytes() -> None:
    page = (Path(__file__).parents[3] / "docs" / "backends.md").read_text(encoding="utf-8")
    for mode in FORMATS:
        name = "fp8" if mode is KVQuantMode.FP8_PER_TENSOR else mode.name.lower()
        (row,) = [line for line in page.splitlines() if re.match(rf"\| `{name}`", line)]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        small, large = (slot_format(mode, size).slot_bytes for size in (64, 128))
        assert cells[1] == f"`{quantised_backend(mode).name}`"
        assert cells[4] == f"{small}, {large}"
        parts = [f"{small / 256:.2f}", f"{large / 512:.2f}"]
        assert cells[5] == ", ".join(dict.fromkeys(parts))


PEER = """
import json
from vllm.model_executor.layers.quantization.turboquant.config import TurboQuantConfig, TQ_PRESETS
from vllm.v1.kv_cache_interface import KVQuantMode
sizes = range(16, 257)
print(json.dumps({"sizes": {name: [TurboQuantConfig.from_cache_dtype(name, size).slot_size_aligned for size in sizes]
                            for name in TQ_PRESETS},
                  "modes": {mode.name: mode.value for mode in KVQuantMode}}))
"""


class Theirs(TypedDict):
    sizes: dict[str, list[int]]
    modes: dict[str, int]


@pytest.fixture(scope="module")
def theirs() -> Theirs:
    python = os.environ["GENERICBUILDERS_PEER_PYTHON"]
    result = subprocess.run([python, "-c", PEER], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found: Theirs = json.loads(result.stdout.splitlines()[-1])
    return found


@pytest.mark.peer
def test_turned_slots_have_as_many_bytes_as_in_vllm(theirs: Theirs) -> None:
    ours = {mode.name.lower(): [slot_format(mode, size).slot_bytes for size in range(16, 257)] for mode in TURNED}
    # Of 2 bits vLLM knows nothing.
    assert ours.pop("turboquant_2bit_nc")
    assert ours == theirs["sizes"]


@pytest.mark.peer
def test_modes_have_vllms_numbers_but_for_those_of_this_librarys_own(theirs: Theirs) -> None:
    assert {mode.name: mode.value for mode in KVQuantMode if not mode.is_own} == theirs["modes"]
    assert {mode.name for mode in KVQuantMode if mode.is_own}.isdisjoint(theirs["modes"])
    assert {mode.value for mode in KVQuantMode if mode.is_own}.isdisjoint(theirs["modes"].values())
