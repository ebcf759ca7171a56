"""A mapping that never changes and can be hashed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

__all__ = ["FrozenMapping"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class FrozenMapping(Mapping[K, V_co]):
    """A private copy of a mapping, in its order; equality and hash do not depend on that order."""

    __slots__ = ("__items",)

    def __init__(self, items: Mapping[K, V_co]) -> None:
        self.__items = dict(items)

    def __getitem__(self, key: K) -> V_co:
        return self.__items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self.__items)

    def __len__(self) -> int:
        return len(self.__items)

    def __hash__(self) -> int:
        return hash(frozenset(self.__items.items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__items!r})"

    def __reduce__(self) -> tuple[type[FrozenMapping[K, V_co]], tuple[dict[K, V_co]]]:
        return type(self), (dict(self.__items),)
