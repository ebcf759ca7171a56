"""What binding checks and what a group does, at run time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from toy_backends import (
    CONFIG,
    CPU,
    FULL_SPEC,
    HEADS,
    STATE_SPEC,
    AnySpecBuilder,
    DenseBuilder,
    DenseImpl,
    DenseMetadata,
    StateImpl,
    dense_adapter,
    one_request,
    state_adapter,
)

from genericbuilders.adapter import BackendAdapter, BackendUnavailableError, BindError, Group, Step
from genericbuilders.builder import AttentionCGSupport, AttentionImpl
from genericbuilders.config import AttentionLayerConfig, EngineConfig, query_heads
from genericbuilders.metadata import BuildInput
from genericbuilders.specs import KVCacheSpec, MambaSpec


def test_a_spec_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    monkeypatch.setattr(DenseBuilder, "__init__", lambda *args, **kwargs: built.append("built"))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - it only records the call
    dense = dense_adapter()
    spec: KVCacheSpec = STATE_SPEC
    with pytest.raises(BindError, match=r"'dense' takes AttentionSpec, but layers \['l0'\] have a MambaSpec"):
        dense.bind_any(spec, [dense.layer("l0", HEADS)], CONFIG, CPU)
    assert not built


def test_case_23_a_state_spec_never_reaches_code_that_asks_for_heads() -> None:
    dense = dense_adapter()
    layer = dense.layer("l0", HEADS)
    with pytest.raises(BindError, match="MambaSpec"):
        dense.bind_any(STATE_SPEC, [layer], CONFIG, CPU)
    assert not hasattr(MambaSpec, "num_kv_heads")
    assert not hasattr(STATE_SPEC, "dtype")


def test_a_group_needs_a_layer() -> None:
    with pytest.raises(BindError, match="at least one layer"):
        dense_adapter().bind(FULL_SPEC, [], CONFIG, CPU)


def test_an_input_that_nobody_provides_is_named() -> None:
    accepted: BuildInput[torch.Tensor] = BuildInput("accepted_counts")
    adapter = BackendAdapter("speculative", DenseBuilder, DenseImpl, needs=(accepted,))
    layer = adapter.layer("l0", HEADS)
    with pytest.raises(BindError, match="accepted_counts"):
        adapter.bind(FULL_SPEC, [layer], CONFIG, CPU)
    assert adapter.bind(FULL_SPEC, [layer], CONFIG, CPU, provided={accepted}).layer_names == ("l0",)


def test_a_missing_module_is_a_reason_and_no_import() -> None:
    adapter = BackendAdapter("far", DenseBuilder, DenseImpl, requires=("no_such_module_here.kernels", "torch"))
    assert adapter.unavailable() == "needs no_such_module_here.kernels, not installed"
    with pytest.raises(BackendUnavailableError, match="'far' needs no_such_module_here"):
        adapter.bind(FULL_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)


def test_a_mispaired_class_that_was_made_at_run_time_is_refused() -> None:
    def pair(impl: type[AttentionImpl[Any]]) -> None:
        BackendAdapter("mixed", AnySpecBuilder, impl)

    with pytest.raises(TypeError, match=r"AnySpecBuilder makes AnyMetadata, but Anon reads StateMetadata"):
        pair(type("Anon", (StateImpl,), {}))


def test_support_is_asked_for_the_group_s_own_spec() -> None:
    dense = dense_adapter()
    group: Group = dense.bind(FULL_SPEC, [dense.layer("l0", HEADS)], CONFIG, CPU)
    assert group.cudagraph_support() is AttentionCGSupport.ALWAYS
    assert state_adapter().cudagraph_support(CONFIG, STATE_SPEC) is AttentionCGSupport.NEVER
    with pytest.raises(BindError, match="takes MambaSpec"):
        state_adapter().cudagraph_support(CONFIG, FULL_SPEC)


def test_a_method_replaced_after_binding_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = dense_adapter()
    group = dense.bind(FULL_SPEC, [dense.layer("l0", HEADS)], CONFIG, CPU)
    monkeypatch.setattr(
        DenseBuilder,
        "get_cudagraph_support",
        classmethod(lambda cls, config, spec: AttentionCGSupport.NEVER),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - stands in for the method
    )
    assert group.cudagraph_support() is AttentionCGSupport.NEVER


def test_every_layer_of_a_group_finds_its_metadata() -> None:
    dense, state = dense_adapter(), state_adapter()
    first, second = dense.layer("l0", HEADS), dense.layer("l1", HEADS)
    other = state.layer("l2", HEADS)
    group = dense.bind(FULL_SPEC, [first, second], CONFIG, CPU)
    step = Step()
    group.build(one_request(seq_len=6), step)
    assert step[first] is step[second]
    assert step[first].block_table.tolist() == [[1, 2]]  # pyright: ignore[reportUnknownMemberType] - torch leaves tolist open
    with pytest.raises(KeyError, match="l2"):
        step[other]


def test_a_group_s_metadata_moves_to_another_table() -> None:
    dense = dense_adapter()
    group = dense.bind(FULL_SPEC, [dense.layer("l0", HEADS)], CONFIG, CPU)
    metadata = group.builder.build(0, one_request())
    moved = group.update_block_table(metadata, torch.tensor([[9]]), torch.tensor([36]))
    assert moved == DenseMetadata(moved.block_table, 2)
    assert int(moved.block_table[0, 0]) == 9


def test_adapters_of_one_factory_are_two() -> None:
    first, second = dense_adapter("same"), dense_adapter("same")
    group = first.bind(FULL_SPEC, [first.layer("l0", HEADS)], CONFIG, CPU)
    assert first.owns(group)
    assert not second.owns(group)
    assert first != second
    with pytest.raises(BindError, match="bound by another adapter that is called 'same', too"):
        second.narrow(group)


def test_raw_pages_are_the_default_cache() -> None:
    state = state_adapter()
    group = state.bind(STATE_SPEC, [state.layer("l0", HEADS)], CONFIG, CPU)
    assert group.kv_cache_shape(7) == (7, STATE_SPEC.page_size_bytes)
    assert group.kv_cache_dtype() is torch.int8


def test_case_21_query_heads_come_from_the_group_s_own_layers() -> None:
    target = AttentionLayerConfig(num_heads=64, num_kv_heads=8, head_size=16, scale=0.25)
    draft = AttentionLayerConfig(num_heads=8, num_kv_heads=2, head_size=16, scale=0.25)
    config = EngineConfig(max_model_len=64, layers={"t0": target, "t1": target, "d0": draft})
    assert query_heads(config, ["t0", "t1"]) // target.num_kv_heads == 8
    assert query_heads(config, ["d0"]) // draft.num_kv_heads == 4
    with pytest.raises(ValueError, match="must share num_heads"):
        query_heads(config, ["t0", "d0"])
    with pytest.raises(ValueError, match="'x9' is not in"):
        query_heads(config, ["x9"])
