"""``backends``: every adapter, what failed, and the kernels."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest
import torch
from torch import Tensor
from toy_backends import AnyMetadata, AnySpecBuilder, DenseBuilder, DenseImpl, StateBuilder, StateImpl
from typer.testing import Result
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.builder import AttentionCGSupport, AttentionImpl
from genericbuilders.config import EngineConfig, query_heads
from genericbuilders.kernels import select
from genericbuilders.plugins import ENTRY_POINT_GROUP, Plugin
from genericbuilders.specs import KVCacheSpec

Invoke = Callable[..., Result]


class LayerReadingBuilder(AnySpecBuilder):
    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport:
        return AttentionCGSupport.ALWAYS if query_heads(config, ["l0"]) else AttentionCGSupport.NEVER


class AnyImpl(AttentionImpl[AnyMetadata]):
    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: AnyMetadata
    ) -> Tensor:
        return query


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch, entry_points: list[EntryPoint]) -> None:
    module = ModuleType("made_up_plugin")
    monkeypatch.setitem(sys.modules, "made_up_plugin", module)
    module.__dict__["several"] = Plugin(
        "several",
        (
            BackendAdapter("state", StateBuilder, StateImpl),
            BackendAdapter("absent", DenseBuilder, DenseImpl, requires=("no_such_library",)),
            BackendAdapter("reads_layers", LayerReadingBuilder, AnyImpl),
        ),
    )
    entry_points += [
        EntryPoint("several", "made_up_plugin:several", ENTRY_POINT_GROUP),
        EntryPoint("gone", "no_such_module:x", ENTRY_POINT_GROUP),
    ]


@pytest.mark.usefixtures("plugins")
def test_the_table(invoke: Invoke) -> None:
    result = invoke("backends")
    assert result.exit_code == 0, result.stderr
    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line}
    assert rows["flash_attn"][:4] == ["FullAttentionSpec", "or", "SlidingWindowSpec", "FlashAttentionMetadata"]
    assert rows["flash_attn"][-1] == "yes"
    for name in ("fp8_kv", "int8_kv", "turboquant"):
        assert rows[name] == ["FullAttentionSpec", "FlashAttentionMetadata", "UNIFORM_SINGLE_TOKEN_DECODE", "yes"]
    assert rows["tiny_dense"] == ["AttentionSpec", "DenseMetadata", "UNIFORM_BATCH", "to", "ALWAYS", "yes"]
    assert rows["state"] == ["MambaSpec", "StateMetadata", "NEVER", "yes"]
    assert rows["absent"] == [
        "AttentionSpec",
        "DenseMetadata",
        "-",
        "no:",
        "needs",
        "no_such_library,",
        "not",
        "installed",
    ]
    assert rows["reads_layers"] == ["KVCacheSpec", "AnyMetadata", "depends", "on", "the", "spec", "yes"]
    assert "entry point gone = no_such_module:x failed: ModuleNotFoundError: No module named" in result.stdout
    assert "\nCPU kernels: " in result.stdout


@pytest.mark.usefixtures("plugins")
def test_json(invoke: Invoke) -> None:
    result = invoke("backends", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    by_name = {row["name"]: row for row in found["backends"]}
    assert by_name["tiny_dense"] == {
        "name": "tiny_dense",
        "spec_types": ["AttentionSpec"],
        "metadata_type": "DenseMetadata",
        "cudagraph_support": ["UNIFORM_BATCH", "ALWAYS"],
        "available": True,
        "reason": None,
    }
    assert by_name["absent"]["reason"] == "needs no_such_library, not installed"
    assert [failure["entry_point"] for failure in found["failures"]] == ["gone = no_such_module:x"]
    assert found["cpu_kernels"]["name"] in ("native", "portable")


def test_why_there_are_no_compiled_kernels(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str, device: torch.device, dtype: torch.dtype) -> object:
        return select.Unavailable("no compiler") if name == "native" else find(name, device, dtype)

    find = select.find_kernels
    monkeypatch.setattr(select, "find_kernels", none)
    result = invoke("backends")
    assert result.stdout.endswith("CPU kernels: portable (no compiled ones: no compiler)\n")
