"""What the checkers infer for state-space back ends, whose layers have inputs of their own, and what they refuse.

Ignores work as in `test_adapter_types`: both checkers report one that is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_type

import pytest
import torch
from state_batches import CPU, bind_state, state_batch, state_spec
from torch import Tensor
from toy_backends import FULL_SPEC, HEADS, DenseImpl, StateBuilder, StateMetadata
from typing_extensions import override

from genericbuilders.adapter import BindError, BoundGroup, Group, StateAdapter, StateLayer, Step, TypedLayer
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.linear import LINEAR, LinearAttentionMetadata, LinearInputs
from genericbuilders.backends.mamba2 import MAMBA2, Mamba2Inputs, Mamba2Metadata
from genericbuilders.builder import StateImpl
from genericbuilders.calls import SignatureMismatchError
from genericbuilders.config import EngineConfig, StateLayerConfig
from genericbuilders.registry import Registry
from genericbuilders.specs import MambaSpec

LAYER = StateLayerConfig(state_spec().shapes, state_spec().dtypes, 4)
CONFIG = EngineConfig(max_model_len=64, layers={"l0": LAYER, "l1": HEADS})


@dataclass(frozen=True)
class Scaled:
    x: Tensor
    factor: float


class ScalingImpl(StateImpl[StateMetadata, Scaled]):
    @override
    def forward(self, inputs: Scaled, kv_cache: Tensor, attn_metadata: StateMetadata) -> Tensor:
        return inputs.x * inputs.factor


class OldImpl(StateImpl[StateMetadata, Scaled]):
    """Written before ``forward`` was given metadata."""

    @override
    def forward(self, inputs: Scaled, kv_cache: Tensor) -> Tensor:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - drifted
        return inputs.x


def test_metadata_spec_and_inputs_come_from_builder_and_implementation() -> None:
    adapter = StateAdapter("scaling", StateBuilder, ScalingImpl)
    assert_type(adapter, StateAdapter[StateMetadata, MambaSpec, Scaled])
    assert adapter.spec_types == (MambaSpec,)
    assert adapter.metadata_type is StateMetadata
    layer = assert_type(adapter.layer("l0", LAYER), StateLayer[StateMetadata, Scaled])
    assert_type(layer.impl, StateImpl[StateMetadata, Scaled])
    out = layer.impl.forward(Scaled(torch.ones(2), 3.0), torch.zeros(1), StateMetadata(torch.zeros(1)))
    assert torch.equal(out, torch.full((2,), 3.0))


def test_a_layer_finds_its_metadata_in_a_step() -> None:
    layer = MAMBA2.layer("l0", LAYER)
    group = assert_type(MAMBA2.bind(state_spec(), [layer], CONFIG, CPU), BoundGroup[Mamba2Metadata, MambaSpec])
    assert_type(group.layers, Sequence[TypedLayer[Mamba2Metadata]])
    step = Step()
    group.build(state_batch([(1, 3)]), step)
    assert_type(step[layer], Mamba2Metadata)
    assert step[layer] is group.metadata(step)


def test_mispaired_builder_and_implementation_are_refused() -> None:
    with pytest.raises(TypeError, match="makes Mamba2Metadata, but ScalingImpl reads StateMetadata"):
        StateAdapter("mixed", MAMBA2.builder, ScalingImpl)  # type: ignore[misc]  # pyright: ignore[reportArgumentType] - ScalingImpl reads StateMetadata


def test_inputs_of_another_back_end_are_refused() -> None:
    layer = MAMBA2.layer("l0", LAYER)

    def run(inputs: LinearInputs, metadata: Mamba2Metadata) -> Tensor:
        return layer.impl.forward(inputs, torch.zeros(1), metadata)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - Mamba2Inputs are needed

    def read(inputs: Mamba2Inputs, metadata: LinearAttentionMetadata) -> Tensor:
        return layer.impl.forward(inputs, torch.zeros(1), metadata)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - Mamba2Metadata is needed

    assert callable(run)
    assert callable(read)


def test_an_attention_implementation_is_no_state_implementation() -> None:
    with pytest.raises(TypeError, match="makes StateMetadata, but DenseImpl reads DenseMetadata"):
        StateAdapter("mixed", StateBuilder, DenseImpl)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - DenseImpl is an AttentionImpl


def test_layers_of_the_other_kind_are_refused() -> None:
    with pytest.raises(BindError, match="layer 'l1' was made by adapter 'flash_attn', not by 'mamba2'"):
        MAMBA2.bind(state_spec(), [FLASH_ATTN.layer("l1", HEADS)], CONFIG, CPU)  # type: ignore[list-item]  # pyright: ignore[reportArgumentType] - an attention layer
    with pytest.raises(BindError, match=r"takes MambaSpec, but layers \['l0'\] have a FullAttentionSpec"):
        MAMBA2.bind(FULL_SPEC, [MAMBA2.layer("l0", LAYER)], CONFIG, CPU)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - an attention spec


def test_a_drifted_forward_is_refused_when_bound() -> None:
    adapter = StateAdapter("old", StateBuilder, OldImpl)
    with pytest.raises(SignatureMismatchError, match=r"OldImpl.forward.* got an unexpected keyword argument 'attn_met"):
        adapter.bind(state_spec(), [adapter.layer("l0", LAYER)], CONFIG, CPU)


def test_owns_leads_back_from_an_erased_group() -> None:
    groups: Sequence[Group] = [bind_state(LINEAR, state_spec()), bind_state(MAMBA2, state_spec())]
    chunks: list[int | None] = []
    for group in groups:
        if MAMBA2.owns(group):
            assert_type(group, BoundGroup[Mamba2Metadata, MambaSpec])
            chunks.append(group.builder.build(0, state_batch([(1, 3)])).chunk_size)
    assert chunks == [4]


def test_the_registry_keeps_an_adapters_whole_type() -> None:
    registry = Registry([MAMBA2])
    assert_type(registry.by_adapter(MAMBA2), StateAdapter[Mamba2Metadata, MambaSpec, Mamba2Inputs])


def test_states_are_views_into_pages() -> None:
    impl = MAMBA2.layer("l0", LAYER).impl
    pages = torch.zeros(3, LAYER.state_bytes + 64, dtype=torch.int8)
    conv, ssm = impl.states(pages)
    assert conv.shape == (3, 3, 5)
    assert ssm.shape == (3, 2, 3, 4)
    ssm[2] = 1.5
    conv[1] = 2.0
    floats = pages.view(torch.float32)
    assert int((floats[2] == 1.5).sum()) == 24
    assert int((floats[1] == 2.0).sum()) == 15
    assert impl.states(pages)[0] is conv


def test_pages_too_small_or_misaligned_for_a_state_are_refused() -> None:
    impl = MAMBA2.layer("l0", LAYER).impl
    with pytest.raises(ValueError, match="has 156 bytes, but a page of the cache has 152"):
        impl.states(torch.zeros(3, 152, dtype=torch.int8))
    with pytest.raises(ValueError, match="pages have 158 bytes, which is no multiple of 4"):
        impl.states(torch.zeros(3, 158, dtype=torch.int8))


def test_tensors_that_would_lie_across_elements_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tensor of shape \(2,\) in torch.float32 would start at byte 6 of a state"):
        StateLayerConfig(((3,), (2,)), (torch.bfloat16, torch.float32))
