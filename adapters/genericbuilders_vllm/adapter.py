"""Adapters around foreign builders: typed call sites without a kernel, or with one of this library's."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeGuard, overload

from typing_extensions import TypeVar, override

from genericbuilders.adapter import BackendAdapter, StateAdapter, TypedAdapter, TypedLayer
from genericbuilders.builder import AttentionImpl, LayerImpl, StateImpl
from genericbuilders.calls import Call
from genericbuilders.config import LayerConfig
from genericbuilders.generics import generic_arguments
from genericbuilders.specs import KVCacheSpec

__all__ = ["NoKernel", "WrappedAdapter", "no_kernel"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)
X = TypeVar("X")


class NoKernel(LayerImpl[M]):
    """The implementation of a wrapped builder without one: it says which metadata there is, and computes nothing."""


def no_kernel(metadata: type[M]) -> type[NoKernel[M]]:
    """`NoKernel` for one metadata type."""

    name = f"NoKernel[{metadata.__qualname__}]"
    made = types.new_class(name, (types.GenericAlias(NoKernel, (metadata,)),))
    if not _is_no_kernel(made, metadata):
        raise TypeError(f"{made!r} is no NoKernel")
    return made


def _is_no_kernel(cls: type[object], metadata: type[M]) -> TypeGuard[type[NoKernel[M]]]:
    """Whether ``cls`` was made with this argument of its base."""
    return generic_arguments(cls, NoKernel) == (metadata,)


@dataclass(frozen=True, eq=False)
class WrappedAdapter(TypedAdapter[M, S], Generic[M, S]):
    """A back end whose builder is a foreign one: bound, registered and asked as any other.

    vLLM's kernels stay vLLM's: a layer of this adapter is a key to its metadata, ``step[layer]``, for a caller that
    runs them itself. `with_impl` makes a back end that computes.

    Attributes:
        impl: `NoKernel` of the metadata.
    """

    impl: type[NoKernel[M]] = field(repr=False)

    @property
    @override
    def impl_type(self) -> type[LayerImpl[M]]:
        return self.impl

    @property
    @override
    def impl_calls(self) -> Sequence[Call]:
        return ()

    def layer(self, name: str, config: LayerConfig) -> TypedLayer[M]:
        """A layer of this back end: the key to its metadata."""
        return TypedLayer(name, config, self)

    @overload
    def with_impl(self, impl: type[AttentionImpl[M]]) -> BackendAdapter[M, S]: ...
    @overload
    def with_impl(self, impl: type[StateImpl[M, X]]) -> StateAdapter[M, S, X]: ...
    def with_impl(
        self, impl: type[AttentionImpl[M]] | type[StateImpl[M, X]]
    ) -> BackendAdapter[M, S] | StateAdapter[M, S, X]:
        """The same builder with an implementation of this library's kind that reads its metadata.

        It is another adapter: it binds the layers that it makes itself.

        Raises:
            TypeError: it reads other metadata, or is of another kind.
        """
        if issubclass(impl, AttentionImpl):
            return BackendAdapter(self.name, self.builder, impl, requires=self.requires, needs=self.needs)
        return StateAdapter(self.name, self.builder, impl, requires=self.requires, needs=self.needs)
