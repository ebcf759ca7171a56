"""How a foreign builder is called: what its methods take of what this library has to give."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from genericbuilders.calls import SignatureMismatchError
from genericbuilders.keys import TypedMap
from genericbuilders_vllm.batch_keys import BuildArgument

__all__ = ["BuildPlan", "MethodPlan", "check_constructor", "plan_build", "plan_method", "required_arguments"]

_BUILD = ("common_prefix_len", "common_attn_metadata", "fast_build")


@dataclass(frozen=True)
class BuildPlan:
    """How to call one ``build``.

    Attributes:
        plain: whether it takes prefix length and batch as its first two arguments.
        takes_prefix: whether it takes the prefix length at all.
        takes_fast: whether it takes ``fast_build``.
        inputs: what it takes beyond that, where ``common.inputs`` has it.
    """

    plain: bool
    takes_prefix: bool
    takes_fast: bool
    inputs: tuple[BuildArgument, ...]

    def beyond(self, inputs: TypedMap) -> dict[str, object]:
        """The arguments beyond those of every build that ``inputs`` has a value for."""
        return {each.name: each.read(inputs) for each in self.inputs if each.key in inputs}


@dataclass(frozen=True)
class MethodPlan:
    """How to call another method.

    Attributes:
        positional: whether it takes everything by position, as vLLM hands it over.
        names: otherwise the arguments that it takes by name.
    """

    positional: bool
    names: tuple[str, ...]

    def call(self, method: Callable[..., object], given: Mapping[str, object]) -> object:
        """Call ``method`` with what it takes of ``given``."""
        if self.positional:
            return method(*given.values())
        return method(**{name: given[name] for name in self.names})


def plan_build(
    owner: str, build: Callable[..., object], known: Sequence[BuildArgument], asked: Sequence[BuildArgument]
) -> BuildPlan:
    """How to call ``build``, a bound method.

    Args:
        owner: the builder's name, for messages.
        build: the method.
        known: arguments that are handed over where the method names them.
        asked: arguments that the user wants handed over.

    Raises:
        SignatureMismatchError: it takes no batch, does not take one of ``asked``, or requires something else.
    """
    signature = inspect.signature(build)
    named, anything = _named(signature)
    for each in asked:
        if each.name in _BUILD:
            raise SignatureMismatchError(f"{owner}.build gets {each.name!r} in any case; leave it out of inputs=")
        if not (each.name in named or anything):
            raise SignatureMismatchError(
                f"{owner}.build{signature} does not take {each.name!r}; leave it out of inputs="
            )
    if not ("common_attn_metadata" in named or anything):
        raise SignatureMismatchError(f"{owner}.build{signature} does not take 'common_attn_metadata', the batch")
    given = {*_BUILD, *(each.name for each in (*known, *asked))}
    _refuse_required(
        f"{owner}.build", signature, given, "hand it over from common.inputs: inputs=(BuildArgument(...),)"
    )
    inputs = (*asked, *(each for each in known if each.name in named and each.name not in {a.name for a in asked}))
    # vLLM itself hands over fast_build to whoever has a place for it.
    takes_fast = "fast_build" in named or anything
    return BuildPlan(named[:2] == _BUILD[:2], _BUILD[0] in named or anything, takes_fast, inputs)


def plan_method(owner: str, name: str, method: Callable[..., object], given: Sequence[str]) -> MethodPlan:
    """How to call ``method``, bound, where ``given`` can be handed over.

    Raises:
        SignatureMismatchError: it requires something else.
    """
    signature = inspect.signature(method)
    # A plain function of a class would take the first argument for its object.
    unbound = next(iter(signature.parameters), None) == "self"
    if not unbound:
        try:
            signature.bind(*given)
        except TypeError:
            pass
        else:
            return MethodPlan(True, tuple(given))
    named, anything = _named(signature)
    _refuse_required(f"{owner}.{name}", signature, set(given), "give it a default")
    return MethodPlan(False, tuple(each for each in given if each in named or anything))


def check_constructor(builder: type[object], keywords: Sequence[str]) -> None:
    """Check that ``builder`` can be constructed with a spec, names, settings and a device, and with ``keywords``.

    Raises:
        SignatureMismatchError: names the argument that it requires besides, or does not take.
    """
    signature = inspect.signature(builder.__init__)
    places = {name: place for place, name in enumerate(signature.parameters)}
    if places.get("kv_cache_spec", 1) != 1:
        raise SignatureMismatchError(
            f"{builder.__qualname__}.__init__{signature} takes kv_cache_spec in place {places['kv_cache_spec']}, but "
            "vLLM hands it over by position, as the first argument"
        )
    try:
        signature.bind("self", "kv_cache_spec", "layer_names", "vllm_config", "device", **dict.fromkeys(keywords))
    except TypeError as error:
        raise SignatureMismatchError(
            f"{builder.__qualname__}.__init__{signature} cannot be called with a spec, layer names, a VllmConfig and a "
            f"device{''.join(f', {name}=' for name in keywords)}: {error}; hand further arguments over by extra="
        ) from None


def required_arguments(function: Callable[..., object]) -> frozenset[str]:
    """The names of arguments without a default."""
    parameters = inspect.signature(function).parameters.values()
    return frozenset(each.name for each in parameters if _required(each))


def _named(signature: inspect.Signature) -> tuple[tuple[str, ...], bool]:
    """The parameters that can be named, in their order, and whether any other can."""
    parameters = signature.parameters.values()
    by_name = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return tuple(by_name), any(each.kind is each.VAR_KEYWORD for each in parameters)


def _refuse_required(what: str, signature: inspect.Signature, given: set[str], advice: str) -> None:
    for each in signature.parameters.values():
        if _required(each) and (each.name not in given or each.kind is each.POSITIONAL_ONLY):
            raise SignatureMismatchError(
                f"{what}{signature} requires {each.name!r}, which nothing here is called; {advice}"
            )


def _required(parameter: inspect.Parameter) -> bool:
    variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variable
