"""A back end written for another release is refused when it is bound, by method and argument."""

from __future__ import annotations

import pytest
import torch
from toy_backends import CONFIG, CPU, FULL_SPEC, HEADS, DenseBuilder, DenseImpl, DenseMetadata, dense_adapter
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.calls import BUILDER_CALLS, IMPL_CALLS, Call, SignatureMismatchError, check_calls
from genericbuilders.metadata import CommonAttentionMetadata


class OldBuilder(DenseBuilder):
    @override
    def build(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - last release had no fast_build
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata
    ) -> DenseMetadata:
        return super().build(common_prefix_len, common_attn_metadata)


class OldImpl(DenseImpl):
    @override
    def forward(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - last release passed no kv_cache
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_metadata: DenseMetadata
    ) -> torch.Tensor:
        return query


class Demanding(DenseImpl):
    @override
    def forward(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - asks for more than it is given
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: DenseMetadata,
        output_scale: torch.Tensor,
    ) -> torch.Tensor:
        return query


class Tolerant(DenseImpl):
    @override
    def forward(self, *args: object, **kwargs: object) -> torch.Tensor:
        return torch.zeros(1)


def test_a_keyword_that_build_lacks_is_named() -> None:
    adapter = BackendAdapter("old", OldBuilder, DenseImpl)
    with pytest.raises(SignatureMismatchError, match=r"OldBuilder\.build.*'fast_build'"):
        adapter.bind(FULL_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)


def test_case_22_a_keyword_that_forward_lacks_is_named() -> None:
    adapter = BackendAdapter("old", DenseBuilder, OldImpl)
    with pytest.raises(SignatureMismatchError, match=r"OldImpl\.forward.*'kv_cache'"):
        adapter.bind(FULL_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)


def test_an_argument_that_nobody_passes_is_named() -> None:
    adapter = BackendAdapter("demanding", DenseBuilder, Demanding)
    with pytest.raises(SignatureMismatchError, match=r"Demanding\.forward.*'output_scale'"):
        adapter.bind(FULL_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)


def test_anything_goes_into_star_arguments() -> None:
    check_calls(Tolerant, IMPL_CALLS)


def test_the_library_s_own_classes_pass() -> None:
    check_calls(DenseBuilder, BUILDER_CALLS)
    check_calls(DenseImpl, IMPL_CALLS)


def test_a_method_replaced_after_import_is_the_one_that_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = dense_adapter()
    monkeypatch.setattr(DenseBuilder, "build", OldBuilder.build)
    with pytest.raises(SignatureMismatchError, match="fast_build"):
        adapter.bind(FULL_SPEC, [adapter.layer("l0", HEADS)], CONFIG, CPU)


def test_a_call_by_position_may_rename() -> None:
    class Renamed:
        def method(self, ours: int) -> int:
            return ours

    check_calls(Renamed, [Call("method", ("self", "theirs"))])
