"""Type arguments read at run time, through every way in which a builder can state them."""

from __future__ import annotations

from typing import Annotated, Generic

import pytest
from typing_extensions import TypeAliasType, TypeVar

from genericbuilders.generics import UnresolvedArgumentError, generic_arguments, union_members


class Spec: ...


class Narrow(Spec): ...


class Other(Spec): ...


M = TypeVar("M")
S = TypeVar("S", bound=Spec, default=Spec)
T = TypeVar("T")
D = TypeVar("D", bound=Spec, default=Narrow)
W = TypeVar("W", bound=Spec)
ALIAS = TypeAliasType("ALIAS", Narrow | Other)


class Root(Generic[M, S]): ...


class One(Root[int]): ...


class Two(Root[int, Narrow]): ...


class Both(Root[int, Narrow | Other]): ...


class Middle(Root[T, Narrow]): ...


class Leaf(Middle[str]): ...


class DeepLeaf(Leaf): ...


class Swapped(Root[T, W], Generic[W, T]): ...


class SwappedLeaf(Swapped[Other, bytes]): ...


class Quoted(Root["int", "Narrow"]): ...


class Mixin: ...


class Mixed(Mixin, Root[int, Other]): ...


class OpenSpec(Root[int, D]): ...


class UnionMiddle(Root[int, Narrow | S]): ...


class UnionLeaf(UnionMiddle[Other]): ...


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (One, (int, Spec)),
        (Two, (int, Narrow)),
        (Leaf, (str, Narrow)),
        (DeepLeaf, (str, Narrow)),
        (SwappedLeaf, (bytes, Other)),
        (Quoted, (int, Narrow)),
        (Mixed, (int, Other)),
        (OpenSpec, (int, Narrow)),
    ],
)
def test_arguments_are_found(cls: type[object], expected: tuple[object, ...]) -> None:
    assert generic_arguments(cls, Root) == expected


@pytest.mark.parametrize("cls", [Both, UnionLeaf])
def test_a_union_keeps_all_its_members(cls: type[object]) -> None:
    assert union_members(generic_arguments(cls, Root)[1], cls) == (Narrow, Other)


def test_an_alias_and_an_annotation_are_seen_through() -> None:
    assert union_members(ALIAS, Root) == (Narrow, Other)
    assert union_members(Annotated[Narrow, "note"], Root) == (Narrow,)


def test_a_parameter_left_open_without_a_default_is_refused() -> None:
    class Open(Root[T, Narrow]): ...

    with pytest.raises(UnresolvedArgumentError, match=r"Open leaves its type parameter .*T open"):
        generic_arguments(Open, Root)


def test_a_bare_base_is_refused_for_its_first_parameter() -> None:
    bare: type[object] = type("Bare", (Root,), {})
    with pytest.raises(UnresolvedArgumentError, match="open"):
        generic_arguments(bare, Root)


def test_a_quoted_name_that_the_module_lacks_is_refused_by_name() -> None:
    namespace: dict[str, object] = {"Root": Root, "__name__": __name__}
    exec("class Absent(Root['NotHere', 'Narrow']): ...", namespace)
    absent = namespace["Absent"]
    assert isinstance(absent, type)
    with pytest.raises(UnresolvedArgumentError, match=r"'NotHere'.*outside TYPE_CHECKING"):
        generic_arguments(absent, Root)


def test_an_unrelated_class_is_refused() -> None:
    with pytest.raises(UnresolvedArgumentError, match="does not derive from Root"):
        generic_arguments(Mixin, Root)


def test_what_is_no_class_is_refused_as_a_member() -> None:
    with pytest.raises(UnresolvedArgumentError, match="is not a class"):
        union_members(3, Root)
