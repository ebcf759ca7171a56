"""What a class gave as arguments to a generic ancestor, read at run time."""

from __future__ import annotations

import sys
import types
from typing import Annotated, ForwardRef, Union, get_args, get_origin

from typing_extensions import NoDefault, TypeAliasType, TypeVar, get_original_bases

__all__ = ["UnresolvedArgumentError", "generic_arguments", "union_members"]


class UnresolvedArgumentError(TypeError):
    """A type argument that a class hands to its generic ancestor cannot be read at run time."""


def generic_arguments(cls: type[object], root: type[object]) -> tuple[object, ...]:
    """The arguments that ``cls`` gives to ``root``, through any generic class in between.

    Type variables left open are filled with their defaults (PEP 696), on Python versions without them too.
    Quoted names are looked up in the module of the class that wrote them.

    Raises:
        UnresolvedArgumentError: an argument stays open, or names something that the module does not hold.
    """
    parameters: tuple[object, ...] = getattr(root, "__parameters__", ())
    if cls is root:
        return tuple(_default(parameter, cls) for parameter in parameters)
    found = _search(cls, root, {})
    if found is None:
        raise UnresolvedArgumentError(f"{cls.__qualname__} does not derive from {root.__qualname__}")
    given = [*found, *parameters[len(found) :]]
    return tuple(_default(argument, cls) if isinstance(argument, TypeVar) else argument for argument in given)


def union_members(argument: object, owner: type[object]) -> tuple[type[object], ...]:
    """The classes of which ``argument`` is the union; a single class is a union of one.

    Raises:
        UnresolvedArgumentError: a member is not a class.
    """
    argument = _unwrap(argument)
    if get_origin(argument) in (Union, types.UnionType):
        return tuple(member for part in get_args(argument) for member in union_members(part, owner))
    if isinstance(argument, type):
        return (argument,)
    raise UnresolvedArgumentError(f"{owner.__qualname__}: {argument!r} is not a class, nor a union of classes")


def _search(cls: type[object], root: type[object], bound: dict[object, object]) -> tuple[object, ...] | None:
    for base in get_original_bases(cls):
        origin = get_origin(base) or base
        if not isinstance(origin, type) or not issubclass(origin, root):
            continue
        arguments = tuple(_substitute(_evaluate(part, cls), bound) for part in get_args(base))
        if origin is root:
            return arguments
        parameters: tuple[object, ...] = getattr(origin, "__parameters__", ())
        return _search(origin, root, dict(zip(parameters, arguments, strict=False)))
    return None


def _evaluate(argument: object, owner: type[object]) -> object:
    if isinstance(argument, str):
        argument = ForwardRef(argument)
    if not isinstance(argument, ForwardRef):
        return argument
    text = argument.__forward_arg__
    namespace = vars(sys.modules[owner.__module__]) if owner.__module__ in sys.modules else {}
    try:
        value: object = eval(argument.__forward_code__, dict(namespace), dict(vars(owner)))
    except NameError as error:
        raise UnresolvedArgumentError(
            f"{owner.__qualname__} quotes the type argument {text!r}, which module {owner.__module__} does not "
            f"hold at run time ({error}); import it outside TYPE_CHECKING"
        ) from None
    return value


def _substitute(argument: object, bound: dict[object, object]) -> object:
    if isinstance(argument, TypeVar):
        return bound.get(argument, argument)
    if get_origin(argument) in (Union, types.UnionType):
        members = [_substitute(part, bound) for part in get_args(argument)]
        if members != list(get_args(argument)):
            return Union[tuple(members)]  # noqa: UP007 - the members are known at run time only
    return argument


def _unwrap(argument: object) -> object:
    while True:
        if isinstance(argument, TypeAliasType):
            argument = argument.__value__
        elif get_origin(argument) is Annotated:
            argument = get_args(argument)[0]
        else:
            return argument


def _default(parameter: object, owner: type[object]) -> object:
    default: object = getattr(parameter, "__default__", NoDefault)
    if default is NoDefault:
        raise UnresolvedArgumentError(
            f"{owner.__qualname__} leaves its type parameter {parameter!r} open, and it has no default; "
            "give it an argument in a subclass and use that"
        )
    return _evaluate(default, owner)
