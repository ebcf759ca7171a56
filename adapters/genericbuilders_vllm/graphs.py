"""CUDA-graph support of foreign builders, in every form in which they state it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from genericbuilders.builder import AttentionCGSupport
from genericbuilders_vllm.signatures import plan_method

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheSpec as TheirKVCacheSpec

__all__ = ["read_support"]

# An older vLLM's name.
_RENAMED = {"PURE_DECODE_ONLY": "UNIFORM_SINGLE_TOKEN_DECODE"}


def read_support(
    builder: type[object], spec: TheirKVCacheSpec, vllm_config: Callable[[], VllmConfig]
) -> AttentionCGSupport:
    """What ``builder`` says, by its method or else by an attribute; without either, none.

    Args:
        builder: a vLLM builder class, with or without vLLM's base.
        spec: what the layers' caches hold.
        vllm_config: makes the run's settings; called only if the method asks for them.

    Raises:
        SignatureMismatchError: the method requires something else than settings and spec, or is none of the class.
        TypeError: it answers something else than vLLM's `AttentionCGSupport`.
    """
    # vLLM's base answers for whoever says nothing; an attribute of an older name is said nearer.
    if (said := _said_before_the_method(builder)) is not None:
        return _converted(builder, said)
    method: object = getattr(builder, "get_cudagraph_support", None)
    if callable(method):
        plan = plan_method(builder.__qualname__, "get_cudagraph_support", method, ("vllm_config", "kv_cache_spec"))
        given: dict[str, object] = {"vllm_config": None, "kv_cache_spec": spec}
        if "vllm_config" in plan.names:
            given["vllm_config"] = vllm_config()
        return _converted(builder, plan.call(method, given))
    for name in ("_cudagraph_support", "cudagraph_support"):
        if hasattr(builder, name):
            return _converted(builder, getattr(builder, name))
    return AttentionCGSupport.NEVER


def _said_before_the_method(builder: type[object]) -> object:
    """``cudagraph_support``, as a class has it that stands before all that have the method or the newer attribute."""
    for each in builder.__mro__:
        own = vars(each)
        if "get_cudagraph_support" in own or "_cudagraph_support" in own:
            return None
        if "cudagraph_support" in own:
            return getattr(builder, "cudagraph_support", None)
    return None


def _converted(builder: type[object], answer: object) -> AttentionCGSupport:
    name: object = getattr(answer, "name", None)
    members = AttentionCGSupport.__members__
    if isinstance(name, str) and _RENAMED.get(name, name) in members:
        return members[_RENAMED.get(name, name)]
    raise TypeError(
        f"{builder.__qualname__} states its CUDA-graph support as {answer!r}; it must be one of {', '.join(members)}"
    )
