"""Which builder classes raise ``TypeError`` when they are imported: their type arguments do not fit the base."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Generic

from typing_extensions import TypeVar

from typecheck.out_of_tree.designs import Design
from typecheck.out_of_tree.inventory import Builder, Inventory

__all__ = ["failing", "refusal"]


class _First: ...


class _Second: ...


_M = TypeVar("_M")
_S = TypeVar("_S", bound=_Second)
_D = TypeVar("_D", bound=_Second, default=_Second)


class _One(ABC, Generic[_M]): ...


class _Two(ABC, Generic[_M, _S]): ...


class _TwoWithDefault(ABC, Generic[_M, _D]): ...


def refusal(design: Design, arguments: int) -> str | None:
    """What Python itself says when a base as the design has it is given that many type arguments; ``None``: nothing.

    Raises:
        ValueError: ``arguments`` is neither 0, 1 nor 2.
    """
    if arguments not in (0, 1, 2):
        raise ValueError(f"a builder base takes 1 or 2 type arguments; asked about {arguments}")
    if not arguments:
        return None
    try:
        _subscribe(design)(_First if arguments == 1 else (_First, _Second))
    except TypeError as error:
        return str(error).replace(f"{__name__}.", "")
    return None


def _subscribe(design: Design) -> Callable[[object], object]:
    base: type = _One
    if design.type_variable is not None:
        base = _TwoWithDefault if "default=" in design.type_variable else _Two
    # As an import does it: the subscript is a call like any other.
    subscript: Callable[[object], object] = getattr(base, "__class_getitem__")  # noqa: B009
    return subscript


def failing(inventory: Inventory, design: Design, arguments_added: int = 0) -> tuple[list[Builder], list[Builder]]:
    """The builders whose own class statement fails on the design's base, and those that come after one of these.

    Args:
        inventory: the builders.
        design: the base.
        arguments_added: type arguments that each direct builder with a narrow spec is given besides its own.
    """
    first: list[Builder] = []
    later: list[Builder] = []
    for builder in inventory.builders:
        chain = inventory.chain(builder)
        broken = [each for each in chain if each.direct and refusal(design, _given(each, arguments_added)) is not None]
        if builder in broken:
            first.append(builder)
        elif broken:
            later.append(builder)
    return first, later


def _given(builder: Builder, added: int) -> int:
    if not added or not builder.narrow:
        return builder.arguments
    return max(builder.arguments, 1) + added
