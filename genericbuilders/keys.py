"""Typed keys and the one mapping that is indexed by them."""

from __future__ import annotations

from typing import Any, Generic, Self

from typing_extensions import TypeVar, override

__all__ = ["Key", "TypedKey", "TypedMap"]

T = TypeVar("T")


class Key:
    """A named key, compared by identity; what it stands for is known to its typed subclass only."""

    def __init__(self, name: str) -> None:
        self.name = name

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class TypedKey(Key, Generic[T]):
    """A key under which a `TypedMap` holds a ``T``."""


class TypedMap:
    """Values of different types, each under a key that knows its type.

    The private dictionary is the library's one place where a type is taken on trust: `put` is the only
    way in and takes a ``TypedKey[T]`` with its ``T``, so what `__getitem__` gives out is what went in.
    """

    def __init__(self) -> None:
        self._values: dict[Key, Any] = {}

    def put(self, key: TypedKey[T], value: T) -> None:
        """Hold ``value`` under ``key``, replacing what was there."""
        self._values[key] = value

    def copy(self) -> Self:
        """The same values in a map of its own."""
        made = type(self)()
        made._values.update(self._values)
        return made

    def __getitem__(self, key: TypedKey[T]) -> T:
        """The value under ``key``.

        Raises:
            KeyError: nothing was put under it; the message lists the names that are there.
        """
        try:
            value: T = self._values[key]
        except KeyError:
            raise KeyError(
                f"nothing is held for {key!r}; held are {sorted(held.name for held in self._values)}"
            ) from None
        return value

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)
