"""This library's specs as vLLM's and back: arithmetic on fields, nothing is allocated.

A class has the name of its counterpart. A field that the other side lacks must hold its default, unless the caller says
that it may be dropped; nothing is lost in silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from typing_extensions import TypeVar

from genericbuilders.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    KVQuantMode,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)
from genericbuilders_vllm.library import require_vllm

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheSpec as TheirKVCacheSpec

__all__ = ["SpecConversionError", "from_vllm_spec", "their_spec_type", "to_vllm_spec"]

K = TypeVar("K")

_COUNTERPARTS: tuple[type[KVCacheSpec], ...] = (
    KVCacheSpec,
    AttentionSpec,
    FullAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    SlidingWindowMLASpec,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    MambaSpec,
    UniformTypeKVCacheSpecs,
)

# vLLM says GDN_ATTN where the back end here is called gdn.
_SUFFIX = "_ATTN"


class SpecConversionError(ValueError):
    """A spec says something that the other side's spec cannot say."""


def their_spec_type(ours: type[KVCacheSpec]) -> type[TheirKVCacheSpec]:
    """vLLM's class of the same name.

    Raises:
        SpecConversionError: ``ours`` is no class of `genericbuilders.specs`, or vLLM has none of that name.
        BackendUnavailableError: vLLM is not installed.
    """
    require_vllm("converting a spec")
    from vllm.v1 import kv_cache_interface
    from vllm.v1.kv_cache_interface import KVCacheSpec as TheirKVCacheSpec

    theirs: object = getattr(kv_cache_interface, ours.__name__, None) if ours in _COUNTERPARTS else None
    if not isinstance(theirs, type) or not issubclass(theirs, TheirKVCacheSpec):
        raise SpecConversionError(
            f"{ours.__module__}.{ours.__qualname__} has no counterpart in vLLM; convertible are "
            f"{', '.join(each.__name__ for each in _COUNTERPARTS)}"
        )
    return theirs


def to_vllm_spec(spec: KVCacheSpec) -> TheirKVCacheSpec:
    """``spec`` as vLLM's class of the same name; what only vLLM has keeps its default there.

    Raises:
        SpecConversionError: a field that vLLM lacks is set, a value has no counterpart, or the page's size differs.
        BackendUnavailableError: vLLM is not installed.
    """
    theirs = their_spec_type(type(spec))
    known = {field.name for field in _fields(theirs)}
    values: dict[str, object] = {}
    for field in dataclasses.fields(spec):
        value: object = getattr(spec, field.name)
        if field.name in known:
            values[field.name] = _to_value(spec, field.name, value)
        elif value != field.default:
            raise SpecConversionError(
                f"{type(spec).__name__}: {field.name} is {value!r}, which vLLM's {theirs.__name__} cannot say; "
                f"leave it at {field.default!r}"
            )
    made = _construct(theirs, values)
    if made.page_size_bytes != spec.page_size_bytes:
        raise SpecConversionError(
            f"{type(spec).__name__}: a page has {spec.page_size_bytes} bytes, in vLLM {made.page_size_bytes}; "
            "page_size_padded must be what alignment makes of the content, or there must be no alignment"
        )
    return made


def from_vllm_spec(spec: TheirKVCacheSpec, ignore: Collection[str] = ()) -> KVCacheSpec:
    """vLLM's ``spec`` as this library's class of the same name.

    Args:
        spec: vLLM's; of one of its own classes, not of a subclass.
        ignore: fields of vLLM's that may be dropped although they are set, such as ``("max_tp_shards",)``.

    Raises:
        SpecConversionError: the class has no counterpart, a field that this library lacks is set and not ignored, or a
            value has no counterpart.
        ValueError: this library refuses the values; see the class.
    """
    counterparts = {each.__name__: each for each in _COUNTERPARTS}
    ours = counterparts.get(type(spec).__name__)
    if ours is None or type(spec) is not their_spec_type(ours):
        raise SpecConversionError(
            f"vLLM's {type(spec).__qualname__} has no counterpart here; convertible are {', '.join(counterparts)}"
        )
    known = {field.name for field in dataclasses.fields(ours)}
    values: dict[str, object] = {}
    dropped: list[str] = []
    for field in dataclasses.fields(spec):
        value: object = getattr(spec, field.name)
        if field.name in known:
            values[field.name] = _from_value(spec, field.name, value, ignore)
        elif value != _their_default(spec, field) and field.name not in ignore:
            dropped.append(f"{field.name} is {value!r}")
    if dropped:
        raise SpecConversionError(
            f"vLLM's {type(spec).__name__}: {'; '.join(dropped)}, which this library's cannot say; "
            "pass ignore=(...) with these names if that does not matter here"
        )
    return _make(ours, values)


def _construct(cls: Callable[..., K], values: Mapping[str, object]) -> K:
    return cls(**values)


def _make(ours: Callable[..., KVCacheSpec], values: Mapping[str, object]) -> KVCacheSpec:
    if values.get("alignment") is not None:
        # vLLM stores what the alignment makes of the content; here it is worked out when asked for.
        plain = ours(**{**values, "page_size_padded": None})
        if plain.page_size_bytes == values["page_size_padded"]:
            return plain
    return ours(**values)


def _fields(cls: type[TheirKVCacheSpec]) -> tuple[dataclasses.Field[object], ...]:
    return dataclasses.fields(cls)


def _their_default(spec: TheirKVCacheSpec, field: dataclasses.Field[object]) -> object:
    from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs as Theirs

    if isinstance(spec, Theirs) and field.name == "dcp_sharded":
        # A wrapper repeats what its layers say.
        return next(iter(spec.kv_cache_specs.values())).dcp_sharded
    return field.default


def _to_value(spec: KVCacheSpec, name: str, value: object) -> object:
    from vllm.v1 import kv_cache_interface
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum

    if isinstance(value, KVQuantMode):
        if value.is_own:
            raise SpecConversionError(
                f"{type(spec).__name__}: {name} is {value.name}, a mode of this library's own that vLLM does not have; "
                "take another mode for caches that vLLM is to read"
            )
        modes = kv_cache_interface.KVQuantMode.__members__
        return _member(spec, name, value.name, modes)
    if isinstance(spec, MambaSpec) and name == "mamba_type":
        members = MambaAttentionBackendEnum.__members__
        member = spec.mamba_type.upper()
        return _member(spec, name, member if member in members else member + _SUFFIX, members)
    if isinstance(spec, UniformTypeKVCacheSpecs) and name == "kv_cache_specs":
        return {layer: to_vllm_spec(each) for layer, each in spec.kv_cache_specs.items()}
    return value


def _from_value(spec: TheirKVCacheSpec, name: str, value: object, ignore: Collection[str]) -> object:
    from vllm.v1 import kv_cache_interface as theirs
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum

    if isinstance(value, theirs.KVQuantMode):
        # A mode of theirs is none of this library's own, even if it should get the name of one.
        shared = {member.name: member for member in KVQuantMode if not member.is_own}
        return _member(spec, name, value.name, shared)
    if isinstance(value, MambaAttentionBackendEnum):
        return value.name.removesuffix(_SUFFIX).lower()
    if isinstance(spec, theirs.UniformTypeKVCacheSpecs) and name == "kv_cache_specs":
        return {layer: from_vllm_spec(each, ignore) for layer, each in spec.kv_cache_specs.items()}
    return value


def _member(spec: object, name: str, member: str, members: Mapping[str, object]) -> object:
    if member not in members:
        raise SpecConversionError(
            f"{type(spec).__name__}: {name} is {member}; the other side knows {', '.join(members)}"
        )
    return members[member]
