"""What the checkers infer from `wrap`'s arguments, and what they refuse; the same is refused at run time.

Every refused line carries the ignore of both checkers. Both report an ignore that is not needed, so a line
that starts to pass is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

import pytest
from torch import Tensor
from toy_backends import CONFIG, CPU, FULL_SPEC, HEADS, STATE_SPEC, one_request
from typing_extensions import override

from genericbuilders.adapter import Adapter, BackendAdapter, BindError, BoundGroup, StateAdapter, Step, TypedLayer
from genericbuilders.builder import AttentionImpl, StateImpl
from genericbuilders.registry import Registry, Selection
from genericbuilders.specs import AttentionSpec, FullAttentionSpec, KVCacheSpec, MambaSpec
from genericbuilders_vllm import WrappedAdapter, make_vllm_config, wrap, wrap_despite_hints

if TYPE_CHECKING:
    from foreign_builders import DenseMetadata, StateMetadata


def test_both_types_come_from_the_arguments() -> None:
    from foreign_builders import (
        DenseBuilder,
        DenseMetadata,
        DuckBuilder,
        InheritedBuilder,
        StateBuilder,
        StateMetadata,
        UnparametrisedBuilder,
        WidthBuilder,
    )
    from unhinted_builder import BareBuilder

    assert_type(
        wrap(DenseBuilder, spec=AttentionSpec, metadata=DenseMetadata), WrappedAdapter[DenseMetadata, AttentionSpec]
    )
    full = wrap(DenseBuilder, spec=FullAttentionSpec, metadata=DenseMetadata)
    assert_type(full, WrappedAdapter[DenseMetadata, FullAttentionSpec])
    state = wrap(StateBuilder, spec=MambaSpec, metadata=StateMetadata, name="states")
    assert_type(state, WrappedAdapter[StateMetadata, MambaSpec])
    inherited = wrap(InheritedBuilder, spec=MambaSpec, metadata=StateMetadata)
    assert_type(inherited, WrappedAdapter[StateMetadata, MambaSpec])
    width = wrap(WidthBuilder, spec=KVCacheSpec, metadata=DenseMetadata)
    assert_type(width, WrappedAdapter[DenseMetadata, KVCacheSpec])
    plain = wrap(UnparametrisedBuilder, spec=FullAttentionSpec, metadata=DenseMetadata)
    assert_type(plain, WrappedAdapter[DenseMetadata, FullAttentionSpec])
    duck = wrap(DuckBuilder, spec=FullAttentionSpec, metadata=DenseMetadata)
    assert_type(duck, WrappedAdapter[DenseMetadata, FullAttentionSpec])
    bare = wrap(BareBuilder, spec=MambaSpec, metadata=DenseMetadata)
    assert_type(bare, WrappedAdapter[DenseMetadata, MambaSpec])
    assert [each.spec_types for each in (full, state, width)] == [(FullAttentionSpec,), (MambaSpec,), (KVCacheSpec,)]
    assert state.metadata_type is StateMetadata


def test_a_spec_that_the_hint_excludes_is_refused() -> None:
    from foreign_builders import DenseBuilder, DenseMetadata, DuckBuilder, StateBuilder, StateMetadata

    with pytest.raises(
        TypeError, match=r"DenseBuilder.__init__ takes kv_cache_spec: AttentionSpec, but spec=MambaSpec"
    ):
        wrap(DenseBuilder, spec=MambaSpec, metadata=DenseMetadata)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] - a state is no attention cache
    with pytest.raises(TypeError, match=r"takes kv_cache_spec: AttentionSpec, but spec=KVCacheSpec"):
        wrap(DenseBuilder, spec=KVCacheSpec, metadata=DenseMetadata)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] - any spec is more than it takes
    with pytest.raises(TypeError, match=r"takes kv_cache_spec: MambaSpec, but spec=FullAttentionSpec"):
        wrap(StateBuilder, spec=FullAttentionSpec, metadata=StateMetadata)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] - keys and values are no state
    with pytest.raises(TypeError, match=r"takes kv_cache_spec: FullAttentionSpec, but spec=AttentionSpec"):
        wrap(DuckBuilder, spec=AttentionSpec, metadata=DenseMetadata)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] - wider than it takes


def test_metadata_that_the_builder_does_not_make_is_refused() -> None:
    from foreign_builders import (
        DenseBuilder,
        DenseMetadata,
        DuckBuilder,
        InheritedBuilder,
        NarrowDenseMetadata,
        StateMetadata,
        UnparametrisedBuilder,
    )

    with pytest.raises(TypeError, match=r"DenseBuilder.build makes DenseMetadata, but metadata=StateMetadata"):
        wrap(DenseBuilder, spec=AttentionSpec, metadata=StateMetadata)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] - it makes DenseMetadata
    with pytest.raises(TypeError, match=r"DenseBuilder.build makes DenseMetadata, but metadata=NarrowDenseMetadata"):
        wrap(DenseBuilder, spec=AttentionSpec, metadata=NarrowDenseMetadata)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] - it makes a base of it
    with pytest.raises(TypeError, match=r"UnparametrisedBuilder.build makes DenseMetadata, but metadata=StateMetadata"):
        wrap(UnparametrisedBuilder, spec=FullAttentionSpec, metadata=StateMetadata)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] - its build says what it makes
    with pytest.raises(TypeError, match=r"DuckBuilder.build makes DenseMetadata, but metadata=StateMetadata"):
        wrap(DuckBuilder, spec=FullAttentionSpec, metadata=StateMetadata)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] - likewise
    with pytest.raises(TypeError, match=r"InheritedBuilder.build makes StateMetadata, but metadata=DenseMetadata"):
        wrap(InheritedBuilder, spec=MambaSpec, metadata=DenseMetadata)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] - its base's argument says it


def test_an_option_that_is_none_is_refused() -> None:
    from foreign_builders import DenseBuilder, DenseMetadata

    with pytest.raises(TypeError, match="knows no option 'extras'"):
        wrap(DenseBuilder, spec=AttentionSpec, metadata=DenseMetadata, extras={})  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue] - a misspelt option


def test_a_wrong_hint_is_said_to_be_wrong() -> None:
    from foreign_builders import DenseMetadata, MisHintedBuilder

    with pytest.raises(TypeError, match="wrap_despite_hints"):
        wrap(MisHintedBuilder, spec=MambaSpec, metadata=DenseMetadata)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] - it says AttentionSpec
    adapter = wrap_despite_hints(MisHintedBuilder, spec=MambaSpec, metadata=DenseMetadata)
    assert_type(adapter, WrappedAdapter[DenseMetadata, MambaSpec])
    group = adapter.bind(STATE_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)
    assert group.builder.build(0, one_request()).num_kv_heads == len(STATE_SPEC.shapes)
    with pytest.raises(BindError, match="takes MambaSpec, but"):
        adapter.bind(FULL_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - it was wrapped for states


def test_it_is_an_adapter_like_any_other() -> None:
    from foreign_builders import DenseBuilder, DenseMetadata, StateBuilder, StateMetadata

    dense = wrap(DenseBuilder, spec=AttentionSpec, metadata=DenseMetadata, name="dense")
    state = wrap(StateBuilder, spec=MambaSpec, metadata=StateMetadata, name="state")
    registry = Registry([dense, state])
    assert_type(registry.by_adapter(dense), WrappedAdapter[DenseMetadata, AttentionSpec])
    assert_type(registry.by_name("state"), Adapter)
    assert assert_type(registry.for_spec(STATE_SPEC), Selection[MambaSpec]).adapter is state
    layer = assert_type(dense.layer("l0", HEADS), TypedLayer[DenseMetadata])
    group = assert_type(dense.bind(FULL_SPEC, [layer], CONFIG, CPU), BoundGroup[DenseMetadata, AttentionSpec])
    step, common = Step(), one_request()
    group.build(common, step, 3)
    made = assert_type(step[layer], DenseMetadata)
    assert made is group.metadata(step)
    assert (made.prefix, made.num_kv_heads, made.fast) == (3, FULL_SPEC.num_kv_heads, False)
    assert made.block_table.data_ptr() == common.block_table_tensor.data_ptr()
    erased = registry.by_name("dense").bind_any(FULL_SPEC, [layer], CONFIG, CPU)
    assert dense.owns(erased)
    assert not state.owns(erased)
    assert_type(dense.narrow(erased), BoundGroup[DenseMetadata, AttentionSpec])


def test_with_impl_makes_a_back_end_that_computes() -> None:
    from foreign_builders import DenseBuilder, DenseMetadata, StateBuilder, StateMetadata

    class DenseImpl(AttentionImpl[DenseMetadata]):
        @override
        def forward(
            self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: DenseMetadata
        ) -> Tensor:
            return query * attn_metadata.num_kv_heads

    class DoubleImpl(StateImpl[StateMetadata, Tensor]):
        @override
        def forward(self, inputs: Tensor, kv_cache: Tensor, attn_metadata: StateMetadata) -> Tensor:
            return inputs * 2

    dense = wrap(DenseBuilder, spec=AttentionSpec, metadata=DenseMetadata)
    state = wrap(StateBuilder, spec=MambaSpec, metadata=StateMetadata)
    assert_type(dense.with_impl(DenseImpl), BackendAdapter[DenseMetadata, AttentionSpec])
    assert_type(state.with_impl(DoubleImpl), StateAdapter[StateMetadata, MambaSpec, Tensor])
    assert dense.with_impl(DenseImpl).spec_types == (AttentionSpec,)
    with pytest.raises(TypeError, match=r"makes StateMetadata, but .*DenseImpl reads DenseMetadata"):
        state.with_impl(DenseImpl)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] - it reads other metadata


def test_settings_are_vllms() -> None:
    config = make_vllm_config(CONFIG, FULL_SPEC)
    assert config.cache_config.block_size == CONFIG.block_size
