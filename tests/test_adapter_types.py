"""What the checkers infer at each of the adapter's contracts, and what they refuse.

Every refused line carries the ignore of both checkers. Both report an ignore that is not needed, so a line
that starts to pass is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_type

import pytest
import torch
from toy_backends import (
    CONFIG,
    CPU,
    FULL_SPEC,
    HEADS,
    STATE_SPEC,
    AnyMetadata,
    AnySpecBuilder,
    DenseBuilder,
    DenseImpl,
    DenseMetadata,
    StateBuilder,
    StateImpl,
    StateMetadata,
    dense_adapter,
    one_request,
    state_adapter,
)
from typing_extensions import TypeVar, override

from genericbuilders.adapter import (
    Adapter,
    AnyAttentionLayer,
    AttentionAdapter,
    AttentionLayer,
    BackendAdapter,
    BindError,
    BoundGroup,
    Group,
    Layer,
    Step,
)
from genericbuilders.backends import BUILT_IN
from genericbuilders.builder import AttentionImpl, AttentionMetadataBuilder
from genericbuilders.metadata import BuildInput, CommonAttentionMetadata
from genericbuilders.registry import Registry, Selection, SpecGroup
from genericbuilders.rotary import Rotary
from genericbuilders.specs import AttentionSpec, FullAttentionSpec, KVCacheSpec, MambaSpec, UniformTypeKVCacheSpecs

T = TypeVar("T")


class UnionBuilder(AttentionMetadataBuilder[DenseMetadata, AttentionSpec | UniformTypeKVCacheSpecs]):
    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> DenseMetadata:
        spec = assert_type(self.kv_cache_spec, AttentionSpec | UniformTypeKVCacheSpecs)
        heads = spec.num_kv_heads if isinstance(spec, AttentionSpec) else 0
        return DenseMetadata(common_attn_metadata.block_table_tensor, heads)


class CommonBuilder(AttentionMetadataBuilder[T, MambaSpec]):
    """A generic intermediate class, as the state-space family has one."""


class Leaf(CommonBuilder[StateMetadata]):
    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> StateMetadata:
        assert_type(self.kv_cache_spec, MambaSpec)
        return StateMetadata(common_attn_metadata.block_table_tensor)


class AnyImpl(AttentionImpl[AnyMetadata]):
    @override
    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: AnyMetadata,
    ) -> torch.Tensor:
        return query


class SiblingRead(AttentionMetadataBuilder[AnyMetadata]):
    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> AnyMetadata:
        # One parameter means any spec: a field that only some specs have is refused.
        return AnyMetadata(self.kv_cache_spec.num_kv_heads)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType] - KVCacheSpec has no heads


class StateRead(AttentionMetadataBuilder[AnyMetadata, MambaSpec]):
    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> AnyMetadata:
        # Case 23: a state spec has shapes and dtypes, not one dtype and heads.
        print(self.kv_cache_spec.dtype)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType] - MambaSpec has dtypes
        return AnyMetadata(self.kv_cache_spec.num_kv_heads)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType] - MambaSpec has no heads


def test_adapter_takes_both_types_from_its_builder() -> None:
    assert_type(BackendAdapter("dense", DenseBuilder, DenseImpl), BackendAdapter[DenseMetadata, AttentionSpec])
    assert_type(BackendAdapter("state", StateBuilder, StateImpl), BackendAdapter[StateMetadata, MambaSpec])
    assert_type(
        BackendAdapter("union", UnionBuilder, DenseImpl),
        BackendAdapter[DenseMetadata, AttentionSpec | UniformTypeKVCacheSpecs],
    )
    assert_type(BackendAdapter("leaf", Leaf, StateImpl), BackendAdapter[StateMetadata, MambaSpec])
    assert_type(BackendAdapter("any", AnySpecBuilder, AnyImpl), BackendAdapter[AnyMetadata, KVCacheSpec])


def test_adapter_reads_the_same_types_at_run_time() -> None:
    assert BackendAdapter("union", UnionBuilder, DenseImpl).spec_types == (AttentionSpec, UniformTypeKVCacheSpecs)
    assert BackendAdapter("leaf", Leaf, StateImpl).spec_types == (MambaSpec,)
    assert BackendAdapter("leaf", Leaf, StateImpl).metadata_type is StateMetadata
    assert BackendAdapter("any", AnySpecBuilder, AnyImpl).spec_types == (KVCacheSpec,)


def test_mispaired_builder_and_implementation_are_refused() -> None:
    with pytest.raises(TypeError, match="makes DenseMetadata, but StateImpl reads StateMetadata"):
        BackendAdapter("mixed", DenseBuilder, StateImpl)  # type: ignore[misc]  # pyright: ignore[reportArgumentType] - StateImpl reads StateMetadata


def test_bound_group_keeps_both_types() -> None:
    dense = dense_adapter()
    layer = assert_type(dense.layer("l0", HEADS), AttentionLayer[DenseMetadata])
    group = assert_type(dense.bind(FULL_SPEC, [layer], CONFIG, CPU), BoundGroup[DenseMetadata, AttentionSpec])
    assert_type(group.spec, AttentionSpec)
    assert_type(group.builder.build(0, one_request()), DenseMetadata)
    step = Step()
    group.build(one_request(), step)
    assert_type(step[layer], DenseMetadata)
    assert step[layer] is group.metadata(step)


def test_wrong_spec_is_refused_by_bind() -> None:
    dense, state = dense_adapter(), state_adapter()
    with pytest.raises(BindError, match=r"takes AttentionSpec, but layers \['l0'\] have a MambaSpec"):
        dense.bind(STATE_SPEC, [dense.layer("l0", HEADS)], CONFIG, CPU)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a MambaSpec for an attention builder
    with pytest.raises(BindError, match=r"takes MambaSpec, but layers \['l0'\] have a FullAttentionSpec"):
        state.bind(FULL_SPEC, [state.layer("l0", HEADS)], CONFIG, CPU)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - an attention spec for a state builder


def test_layers_and_metadata_of_another_back_end_are_refused() -> None:
    dense, state = dense_adapter(), state_adapter()
    layer = state.layer("l0", HEADS)
    with pytest.raises(BindError, match="layer 'l0' was made by adapter 'state', not by 'dense'"):
        dense.bind(FULL_SPEC, [layer], CONFIG, CPU)  # type: ignore[list-item]  # pyright: ignore[reportArgumentType] - a layer of StateMetadata
    step = Step()
    step.put(layer, DenseMetadata(torch.zeros(1), 1))  # type: ignore[misc]  # pyright: ignore[reportArgumentType] - DenseMetadata under a key of StateMetadata


def test_owns_and_narrow_lead_back_to_the_types() -> None:
    dense, state = dense_adapter(), state_adapter()
    groups: Sequence[Group] = [
        dense.bind(FULL_SPEC, [dense.layer("l0", HEADS)], CONFIG, CPU),
        state.bind(STATE_SPEC, [state.layer("l1", HEADS)], CONFIG, CPU),
    ]
    seen: list[str] = []
    for group in groups:
        if dense.owns(group):
            assert_type(group, BoundGroup[DenseMetadata, AttentionSpec])
            seen.append(f"{group.spec.num_kv_heads} heads")
        elif state.owns(group):
            assert_type(group, BoundGroup[StateMetadata, MambaSpec])
            seen.append(f"{len(group.spec.shapes)} states")
    assert seen == ["2 heads", "1 states"]
    assert_type(dense.narrow(groups[0]), BoundGroup[DenseMetadata, AttentionSpec])


def test_nothing_on_the_erased_type_is_one_back_ends_own() -> None:
    def read(group: Group) -> object:
        return group.spec  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] - a Group is erased

    dense = dense_adapter()
    assert read(dense.bind(FULL_SPEC, [dense.layer("l0", HEADS)], CONFIG, CPU)) is FULL_SPEC


def test_owns_leaves_the_other_branch_alive() -> None:
    first, second = dense_adapter("first"), dense_adapter("second")
    group = second.bind(FULL_SPEC, [second.layer("l0", HEADS)], CONFIG, CPU)
    owner = "nobody"
    if first.owns(group):
        owner = "first"
    elif second.owns(group):
        # Same M and S as the first: a TypeIs would have made this branch unreachable.
        owner = assert_type(group, BoundGroup[DenseMetadata, AttentionSpec]).adapter.name
    assert owner == "second"


def test_registry_answers_at_the_types_it_can_know() -> None:
    dense, state = dense_adapter(), state_adapter()
    registry = Registry([dense, state])
    assert_type(registry.by_adapter(dense), BackendAdapter[DenseMetadata, AttentionSpec])
    assert_type(registry.by_name("dense"), Adapter)
    chosen = assert_type(registry.for_spec(STATE_SPEC), Selection[MambaSpec])
    bound = assert_type(chosen.bind([state.layer("l1", HEADS)], CONFIG, CPU), SpecGroup[MambaSpec])
    assert_type(bound.spec, MambaSpec)
    assert_type(registry.for_spec(FULL_SPEC), Selection[FullAttentionSpec])
    assert state.owns(bound.group)


def test_a_back_end_of_attention_by_name_makes_layers_that_find_their_metadata_themselves() -> None:
    chosen = Registry([dense_adapter()]).by_name("dense")
    assert isinstance(chosen, AttentionAdapter)
    # No metadata type is left unknown: with BackendAdapter it would be.
    attention = assert_type(chosen, AttentionAdapter)
    layer = assert_type(attention.layer("l0", HEADS), AnyAttentionLayer)
    group = attention.bind_any(FULL_SPEC, [layer], CONFIG, CPU)
    step = Step()
    group.build(one_request(), step)
    query = torch.arange(32.0).view(1, 4, 8)
    caches: Mapping[Layer, torch.Tensor] = {layer: torch.zeros(1)}
    # The toy multiplies by the key-value heads that its metadata holds.
    assert torch.equal(assert_type(layer.attend(query, query, query, step, caches), torch.Tensor), 2 * query)
    turned = layer.attend_rotary(query, query, query, Rotary(torch.zeros(1, 8), torch.ones(1, 8)), step, caches)
    assert torch.equal(turned, 2 * torch.cat((-query[..., 4:], query[..., :4]), dim=-1))
    with pytest.raises(KeyError, match="nothing is held for <AttentionLayer 'l0'>"):
        layer.attend(query, query, query, Step(), caches)
    with pytest.raises(KeyError, match="l0"):
        layer.attend(query, query, query, step, {})


def test_nothing_of_one_back_ends_own_is_on_an_attention_layer_of_any() -> None:
    def kernel(layer: AnyAttentionLayer) -> object:
        return layer.impl  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] - whose M it reads is not known

    def metadata(layer: AnyAttentionLayer, step: Step) -> object:
        return step[layer]  # type: ignore[index]  # pyright: ignore[reportArgumentType, reportUnknownVariableType] - the key has no M

    dense = dense_adapter()
    layer = dense.layer("l0", HEADS)
    step = Step()
    dense.bind(FULL_SPEC, [layer], CONFIG, CPU).build(one_request(), step)
    assert kernel(layer) is layer.impl
    assert metadata(layer, step) is step[layer]


def test_only_attention_over_plain_keys_and_values_is_an_attention_adapter() -> None:
    assert {adapter.name for adapter in BUILT_IN if not isinstance(adapter, AttentionAdapter)} == {
        "mla",
        "mla_sparse",
        "indexer",
        "mamba1",
        "mamba2",
        "gdn",
        "linear",
        "bailing_linear",
        "short_conv",
    }


def test_accepts_narrows_a_spec() -> None:
    spec: KVCacheSpec = FULL_SPEC
    dense = dense_adapter()
    assert dense.accepts(spec)
    if dense.accepts(spec):
        assert_type(spec, AttentionSpec)


def test_inputs_are_read_at_their_type() -> None:
    accepted: BuildInput[torch.Tensor] = BuildInput("accepted")
    common = one_request()
    common.inputs.put(accepted, torch.ones(1))
    assert_type(common.inputs[accepted], torch.Tensor)
    common.inputs.put(accepted, [1])  # type: ignore[misc]  # pyright: ignore[reportArgumentType] - a list under a key of Tensor
