"""Foreign builder classes as adapters, without touching their source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, TypeGuard, overload

from typing_extensions import TypeVar, Unpack

from genericbuilders.adapter import Adapter
from genericbuilders.config import EngineConfig
from genericbuilders.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)
from genericbuilders_vllm.adapter import WrappedAdapter, no_kernel
from genericbuilders_vllm.batch_keys import BuildArgument
from genericbuilders_vllm.hints import made_hint, spec_hints
from genericbuilders_vllm.library import require_vllm
from genericbuilders_vllm.shapes import ClassOf, Making, MakingUnhinted
from genericbuilders_vllm.signatures import required_arguments
from genericbuilders_vllm.specs import their_spec_type
from genericbuilders_vllm.wrapped import Foreign, ForeignClass, make_builder

if TYPE_CHECKING:
    import vllm.v1.kv_cache_interface as theirs
    from vllm.config import VllmConfig

__all__ = ["WrapOptions", "wrap", "wrap_despite_hints"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)
T = TypeVar("T")


class WrapOptions(TypedDict, total=False):
    """What else can be said of a foreign builder.

    Attributes:
        name: the adapter's; the class's name if absent.
        extra: further keywords of its constructor. ``block_table_width`` is handed over where it is asked for.
        inputs: further arguments of its ``build``, from ``common.inputs``; one without a default is among the adapter's
            needs.
        vllm_config: vLLM's settings, or what makes them from this library's; made for a described model if absent.
        requires: modules that must be importable for it to run, besides vLLM.
    """

    name: str
    extra: Mapping[str, object]
    inputs: Sequence[BuildArgument]
    vllm_config: VllmConfig | Callable[[EngineConfig], VllmConfig]
    requires: Sequence[str]


# mypy compares arguments as if a subclass would do; a `ClassOf` is that class alone, so no argument fits two of these.
@overload
def wrap(  # type: ignore[overload-overlap]
    builder: MakingUnhinted, *, spec: ClassOf[S], metadata: ClassOf[M], **options: Unpack[WrapOptions]
) -> WrappedAdapter[M, S]: ...
@overload
def wrap(
    builder: Making[theirs.MambaSpec, M],
    *,
    spec: ClassOf[MambaSpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, MambaSpec]: ...
@overload
def wrap(  # type: ignore[overload-overlap]
    builder: Making[theirs.FullAttentionSpec, M],
    *,
    spec: ClassOf[FullAttentionSpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, FullAttentionSpec]: ...
@overload
def wrap(  # type: ignore[overload-overlap]
    builder: Making[theirs.AttentionSpec, M],
    *,
    spec: ClassOf[AttentionSpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, AttentionSpec]: ...
@overload
def wrap(  # type: ignore[overload-overlap]
    builder: Making[theirs.KVCacheSpec, M],
    *,
    spec: ClassOf[KVCacheSpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, KVCacheSpec]: ...
@overload
def wrap(
    builder: Making[theirs.MLAAttentionSpec, M],
    *,
    spec: ClassOf[MLAAttentionSpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, MLAAttentionSpec]: ...
@overload
def wrap(  # type: ignore[overload-overlap]
    builder: Making[theirs.SlidingWindowSpec, M],
    *,
    spec: ClassOf[SlidingWindowSpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, SlidingWindowSpec]: ...
@overload
def wrap(
    builder: Making[theirs.SlidingWindowMLASpec, M],
    *,
    spec: ClassOf[SlidingWindowMLASpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, SlidingWindowMLASpec]: ...
@overload
def wrap(
    builder: Making[theirs.ChunkedLocalAttentionSpec, M],
    *,
    spec: ClassOf[ChunkedLocalAttentionSpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, ChunkedLocalAttentionSpec]: ...
@overload
def wrap(
    builder: Making[theirs.CrossAttentionSpec, M],
    *,
    spec: ClassOf[CrossAttentionSpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, CrossAttentionSpec]: ...
@overload
def wrap(
    builder: Making[theirs.EncoderOnlyAttentionSpec, M],
    *,
    spec: ClassOf[EncoderOnlyAttentionSpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, EncoderOnlyAttentionSpec]: ...
@overload
def wrap(
    builder: Making[theirs.RSWASpec, M],
    *,
    spec: ClassOf[RSWASpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, RSWASpec]: ...
@overload
def wrap(
    builder: Making[theirs.SinkFullAttentionSpec, M],
    *,
    spec: ClassOf[SinkFullAttentionSpec],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, SinkFullAttentionSpec]: ...
@overload
def wrap(
    builder: Making[theirs.UniformTypeKVCacheSpecs, M],
    *,
    spec: ClassOf[UniformTypeKVCacheSpecs],
    metadata: ClassOf[M],
    **options: Unpack[WrapOptions],
) -> WrappedAdapter[M, UniformTypeKVCacheSpecs]: ...
def wrap(
    builder: Callable[..., object],
    *,
    spec: Callable[..., object],
    metadata: Callable[..., object],
    **options: Unpack[WrapOptions],
) -> Adapter:
    """The back end whose metadata ``builder``, a class of vLLM's kind, builds.

    Args:
        builder: the class, with or without vLLM's base.
        spec: what it builds for: a class of `genericbuilders.specs`. Its constructor gets vLLM's counterpart.
        metadata: what its ``build`` makes.
        **options: see `WrapOptions`.

    Raises:
        TypeError: the builder's hints exclude the spec, or say that it makes something else; both sides are named.
        SignatureMismatchError: a method requires or refuses an argument; both are named.
        BackendUnavailableError: vLLM is not installed.
    """
    owner, ours, made = _class("builder", builder), _class("spec", spec), _class("metadata", metadata)
    if not issubclass(ours, KVCacheSpec):
        raise TypeError(f"spec={ours!r} is no class of genericbuilders.specs")
    require_vllm("wrap")
    from vllm.v1.attention.backend import AttentionMetadataBuilder as TheirBuilder

    counterpart = their_spec_type(ours)
    for hint in spec_hints(owner):
        if not any(issubclass(counterpart, each) for each in hint.classes):
            raise TypeError(
                f"{hint.where} {hint.told()}, but spec={ours.__name__} brings vLLM's {counterpart.__name__}; wrap it "
                "for a spec that it takes, or, if that hint is wrong, say so: wrap_despite_hints"
            )
    says = made_hint(owner, TheirBuilder)
    if says is not None and says.classes != (made,):
        raise TypeError(
            f"{says.where} {says.told()}, but metadata={made.__name__}; name the class that it makes, or, if that hint "
            "is wrong, say so: wrap_despite_hints"
        )
    return _adapter(owner, ours, made, options)


def wrap_despite_hints(
    builder: Callable[..., object], *, spec: ClassOf[S], metadata: ClassOf[M], **options: Unpack[WrapOptions]
) -> WrappedAdapter[M, S]:
    """`wrap` for a builder whose hints are wrong, such as ``AttentionSpec`` where a ``MambaSpec`` arrives.

    No hint is compared, by the checker or at run time; `bind` still takes a ``spec`` only, and what is built is still
    checked to be a ``metadata``.

    Raises:
        TypeError: an argument is of the wrong kind.
        SignatureMismatchError: as `wrap`.
        BackendUnavailableError: vLLM is not installed.
    """
    if not (_is_class(spec) and _is_class(metadata)):
        raise TypeError(f"spec={spec!r} and metadata={metadata!r} must be classes")
    require_vllm("wrap_despite_hints")
    return _adapter(_class("builder", builder), spec, metadata, options)


def _adapter(owner: type[object], spec: type[S], metadata: type[M], options: WrapOptions) -> WrappedAdapter[M, S]:
    unknown = sorted(options.keys() - WrapOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"wrap knows no option {unknown[0]!r}; there are {', '.join(WrapOptions.__annotations__)}")
    their_spec_type(spec)
    builder: object = owner
    if not _makes_builders(builder):
        raise TypeError(f"{owner.__qualname__} has no build method; it is no builder")
    inputs = tuple(options.get("inputs", ()))
    settings = options.get("vllm_config")
    if not (settings is None or callable(settings) or _is_settings(settings)):
        raise TypeError(f"vllm_config={settings!r} is neither a VllmConfig nor makes one from an EngineConfig")
    foreign = Foreign(
        builder=builder,
        owner=owner,
        metadata=metadata,
        extra=dict(options.get("extra", {})),
        inputs=inputs,
        vllm_config=settings,
    )
    foreign.check()
    required = required_arguments(builder.build)
    return WrappedAdapter(
        options.get("name", owner.__name__),
        make_builder(foreign, spec),
        no_kernel(metadata),
        requires=("vllm", *options.get("requires", ())),
        needs=tuple(each.key for each in inputs if each.name in required),
    )


def _is_settings(value: object) -> bool:
    from vllm.config import VllmConfig

    return isinstance(value, VllmConfig)


def _class(name: str, value: object) -> type[object]:
    if not isinstance(value, type):
        raise TypeError(f"{name}={value!r} must be a class")
    return value


def _is_class(value: ClassOf[T]) -> TypeGuard[type[T]]:
    return isinstance(value, type)


def _makes_builders(value: object) -> TypeGuard[ForeignClass]:
    return callable(getattr(value, "build", None))
