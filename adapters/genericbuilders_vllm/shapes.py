"""What a checker knows of a foreign builder: the protocols that `wrap` states its arguments with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, Never, Protocol, TypeAlias

from typing_extensions import TypeVar

__all__ = ["Builds", "BuildsUnhinted", "ClassOf", "Instance", "Making", "MakingUnhinted"]

T = TypeVar("T")
M = TypeVar("M")
V = TypeVar("V")


class Instance(Protocol[T]):
    """An object whose class is ``T``, no subclass of it and no base.

    Every object's ``__class__`` is a property that can be set to its own class, so that this protocol is invariant,
    where a plain ``T`` would be widened until both sides fit.
    """

    # object says type[Self]: T stands for that Self.
    @property  # type: ignore[override]
    def __class__(self) -> type[T]: ...
    @__class__.setter
    def __class__(self, type: type[T], /) -> None: ...


class Builds(Protocol[M]):
    """A builder whose ``build`` makes ``M``, whatever its parameters."""

    @property
    def build(self) -> Callable[..., Instance[M]]: ...  # noqa: D102 - the class says it


class BuildsUnhinted(Protocol):
    """A builder whose ``build`` says nothing of what it makes: only an absent hint passes for `Never`."""

    @property
    def build(self) -> Callable[..., Never]: ...  # noqa: D102 - the class says it


ClassOf: TypeAlias = Callable[..., Instance[T]]
"""The class ``T`` itself."""

Making: TypeAlias = Callable[Concatenate[V, ...], Builds[M]]
"""A builder class whose constructor takes a ``V`` first, and whatever after it, and whose ``build`` makes ``M``."""

MakingUnhinted: TypeAlias = Callable[Concatenate[object, ...], BuildsUnhinted]
"""A builder class without hints on either."""
