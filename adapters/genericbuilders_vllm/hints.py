"""What a foreign builder's hints say it takes and makes, read at run time.

A hint that names something which no module holds at run time says nothing, as an absent one.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from genericbuilders.generics import UnresolvedArgumentError, generic_arguments

__all__ = ["Hint", "made_hint", "spec_hints"]


@dataclass(frozen=True)
class Hint:
    """A hint that could be read.

    Attributes:
        where: where it stands, for messages.
        classes: the classes that it is the union of.
    """

    where: str
    classes: tuple[type[object], ...]

    def told(self) -> str:
        """The classes' names."""
        return " | ".join(each.__name__ for each in self.classes)


def spec_hints(builder: type[object]) -> Iterator[Hint]:
    """What the builder's constructor and its class-level annotation say of ``kv_cache_spec``."""
    found = _first_parameter(builder)
    if found is not None:
        name, hint = found
        yield from _hint(f"{builder.__qualname__}.__init__ takes {name}:", hint)
    for cls in builder.__mro__:
        annotations = inspect.get_annotations(cls)
        if "kv_cache_spec" in annotations:
            hint = _evaluate(annotations["kv_cache_spec"], _module(cls))
            yield from _hint(f"{cls.__qualname__} has kv_cache_spec:", hint)
            return


def made_hint(builder: type[object], base: type[object]) -> Hint | None:
    """What the builder's ``build`` says it makes, or, without that, the argument that it gives to ``base``."""
    for cls in builder.__mro__:
        build: object = cls.__dict__.get("build")
        if build is None:
            continue
        function = inspect.unwrap(build) if callable(build) else build
        annotations: Mapping[str, object] = getattr(function, "__annotations__", {})
        hint = _evaluate(annotations.get("return"), getattr(function, "__globals__", {}))
        hint = _fill(hint, builder, cls)
        for found in _hint(f"{builder.__qualname__}.build makes", hint):
            return found
        break
    if issubclass(builder, base):
        try:
            argument = generic_arguments(builder, base)[0]
        except UnresolvedArgumentError:
            return None
        for found in _hint(f"{builder.__qualname__} gives {base.__name__} the argument", argument):
            return found
    return None


def _first_parameter(builder: type[object]) -> tuple[str, object] | None:
    """The parameter that a constructor takes by position first; that of a base behind ``*args``."""
    for cls in builder.__mro__:
        init: object = cls.__dict__.get("__init__")
        if init is None or cls is object or not callable(init):
            continue
        parameters = list(inspect.signature(init).parameters.values())[1:]
        if parameters and parameters[0].kind in (parameters[0].POSITIONAL_ONLY, parameters[0].POSITIONAL_OR_KEYWORD):
            hint: object = parameters[0].annotation
            if hint is inspect.Parameter.empty:
                return None
            function = inspect.unwrap(init)
            return parameters[0].name, _evaluate(hint, getattr(function, "__globals__", {}))
        if not parameters or parameters[0].kind is not parameters[0].VAR_POSITIONAL:
            return None
    return None


def _hint(where: str, hint: object) -> Iterator[Hint]:
    classes = _classes(hint)
    if classes:
        yield Hint(where, classes)


def _classes(hint: object) -> tuple[type[object], ...]:
    """The classes of a union; none if one member says nothing."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if isinstance(hint, TypeVar):
        hint = hint.__bound__
    if get_origin(hint) in (Union, types.UnionType):
        parts = [_classes(part) for part in get_args(hint)]
        return tuple(each for part in parts for each in part) if all(parts) else ()
    origin: object = get_origin(hint) or hint
    return (origin,) if isinstance(origin, type) and origin is not Any else ()


def _fill(hint: object, builder: type[object], owner: type[object]) -> object:
    """The argument that ``builder`` gives for a type variable of ``owner``."""
    if not isinstance(hint, TypeVar):
        return hint
    parameters: tuple[object, ...] = getattr(owner, "__parameters__", ())
    if hint not in parameters:
        return None
    try:
        return generic_arguments(builder, owner)[parameters.index(hint)]
    except UnresolvedArgumentError:
        return None


def _module(cls: type[object]) -> Mapping[str, object]:
    return vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}


def _evaluate(hint: object, namespace: Mapping[str, object]) -> object:
    if not isinstance(hint, str):
        return hint
    # Specs are often imported for the checker alone.
    interface = sys.modules.get("vllm.v1.kv_cache_interface")
    known = {**(vars(interface) if interface is not None else {}), **namespace}
    try:
        value: object = eval(hint, known)
    except Exception:
        return None
    return _evaluate(value, namespace) if isinstance(value, str) else value
