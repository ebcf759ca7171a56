"""What adapters of layers with inputs of their own share: state-space, latent and selecting ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar, override

from genericbuilders.adapter.bound import TypedAdapter
from genericbuilders.builder import InputsImpl, LayerImpl
from genericbuilders.calls import INPUTS_IMPL_CALLS, Call
from genericbuilders.specs import KVCacheSpec

__all__ = ["InputsAdapter"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)
X = TypeVar("X")


@dataclass(frozen=True, eq=False)
class InputsAdapter(TypedAdapter[M, S], Generic[M, S, X]):
    """One back end: as `BackendAdapter`, with inputs ``X`` that its implementation decides.

    Attributes:
        impl: its implementation.

    Raises:
        TypeError: builder and implementation differ in ``M`` (both are named), or a type argument of
            theirs cannot be read at run time.
    """

    impl: type[InputsImpl[M, X]]

    @property
    @override
    def impl_type(self) -> type[LayerImpl[M]]:
        return self.impl

    @property
    @override
    def impl_calls(self) -> Sequence[Call]:
        return INPUTS_IMPL_CALLS
