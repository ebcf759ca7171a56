"""A foreign builder class as a builder class of this library."""

from __future__ import annotations

import types
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeGuard

import torch
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.backends.mamba_base import NUM_ACCEPTED_TOKENS, NUM_DECODE_DRAFT_TOKENS
from genericbuilders.builder import AttentionCGSupport, AttentionMetadataBuilder
from genericbuilders.config import EngineConfig
from genericbuilders.generics import generic_arguments
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec, MambaSpec
from genericbuilders_vllm.batch import BatchConverter
from genericbuilders_vllm.batch_keys import BuildArgument
from genericbuilders_vllm.graphs import read_support
from genericbuilders_vllm.settings import make_vllm_config
from genericbuilders_vllm.signatures import BuildPlan, check_constructor, plan_build, plan_method, required_arguments
from genericbuilders_vllm.specs import to_vllm_spec

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["BLOCK_TABLE_WIDTH", "Foreign", "WrappedBuilder", "make_builder"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)

BLOCK_TABLE_WIDTH = "block_table_width"


class ForeignBuilder(Protocol):
    """An object of a foreign builder class."""

    @property
    def build(self) -> Callable[..., object]: ...


class ForeignClass(Protocol):
    """A foreign builder class: what makes builders, and says how they build."""

    __name__: str
    __qualname__: str
    __module__: str

    @property
    def build(self) -> Callable[..., object]: ...

    def __call__(self, *args: object, **kwargs: object) -> ForeignBuilder: ...


@dataclass(frozen=True)
class Foreign(Generic[M]):
    """A foreign builder class and what it needs beyond this library's arguments.

    Attributes:
        builder: the class.
        metadata: what its ``build`` makes.
        extra: further keywords of its constructor.
        inputs: further arguments of its ``build``.
        vllm_config: vLLM's settings, or what makes them; ``None`` to make them from this library's.
    """

    builder: Callable[..., ForeignBuilder]
    owner: type[object]
    metadata: type[M]
    extra: Mapping[str, object]
    inputs: tuple[BuildArgument, ...]
    vllm_config: VllmConfig | Callable[[EngineConfig], VllmConfig] | None

    @property
    def name(self) -> str:
        """The class's name."""
        return self.owner.__qualname__

    def settings(self, config: EngineConfig, spec: KVCacheSpec, layer_names: Sequence[str] = ()) -> VllmConfig:
        """vLLM's settings for layers of one spec."""
        given = self.vllm_config
        if given is None:
            return make_vllm_config(config, spec, layer_names)
        return given(config) if callable(given) else given

    def needs_width(self) -> bool:
        """Whether its constructor asks for the width of the block table, and the user has not given it."""
        if BLOCK_TABLE_WIDTH in self.extra:
            return False
        asked: object = getattr(self.owner, "requires_block_table_width", False)
        return bool(asked) or BLOCK_TABLE_WIDTH in required_arguments(self.owner.__init__)

    def check(self) -> None:
        """Check that it can be constructed and that its ``build`` can be called, by their signatures.

        Raises:
            SignatureMismatchError: names the method and the argument.
        """
        width = (BLOCK_TABLE_WIDTH,) if self.needs_width() else ()
        check_constructor(self.owner, (*self.extra, *width))
        build: object = getattr(self.owner, "build", None)
        # A bound method takes what the function takes, but for its object.
        bound = types.MethodType(build, self) if isinstance(build, types.FunctionType) else build
        if not callable(bound):
            raise TypeError(f"{self.name} has no build method; it is no builder")
        self.plan(bound)

    def plan(self, build: Callable[..., object]) -> BuildPlan:
        """How to call its ``build``, bound."""
        known = (
            BuildArgument("num_accepted_tokens", NUM_ACCEPTED_TOKENS),
            BuildArgument("num_decode_draft_tokens_cpu", NUM_DECODE_DRAFT_TOKENS),
        )
        return plan_build(self.name, build, known, self.inputs)


class WrappedBuilder(AttentionMetadataBuilder[M, S]):
    """A builder that has a foreign one build; made for each foreign class by `make_builder`.

    Methods of the foreign builder are looked up when they are called: packages replace them.

    Attributes:
        foreign: the foreign builder.

    Raises:
        SignatureMismatchError: its constructor does not take what there is to hand over.
        SpecConversionError: vLLM's spec cannot say what ``kv_cache_spec`` says.
        ValueError: no settings of vLLM's can be made; see `make_vllm_config`.
    """

    def __init__(
        self, kv_cache_spec: S, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        origin = self.origin()
        self.foreign: ForeignBuilder = _construct(origin, kv_cache_spec, layer_names, config, device)
        self._convert = BatchConverter(derives_prefilling=isinstance(kv_cache_spec, MambaSpec))
        self._metadata: type[M] = origin.metadata
        self._planned: object = None
        self._plan: BuildPlan = self._plan_of(self.foreign.build)

    @classmethod
    @abstractmethod
    def origin(cls) -> Foreign[M]:
        """The foreign class."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: S) -> AttentionCGSupport:
        """What the foreign class says, in whichever form; see `genericbuilders_vllm.graphs`."""
        origin = cls.origin()
        return read_support(origin.owner, to_vllm_spec(kv_cache_spec), lambda: origin.settings(config, kv_cache_spec))

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> M:
        """What the foreign builder builds for the same batch.

        Raises:
            TypeError: it built something else than the adapter was told.
            SignatureMismatchError: its ``build`` was replaced by one that cannot be called.
        """
        build = self.foreign.build
        plan = self._plan
        if getattr(build, "__func__", build) is not self._planned:
            plan = self._plan_of(build)
        theirs, unread = self._convert.convert(common_attn_metadata)
        beyond = plan.beyond(common_attn_metadata.inputs) if unread and plan.inputs else None
        if plan.plain and not beyond:
            made = build(common_prefix_len, theirs, fast_build) if plan.takes_fast else build(common_prefix_len, theirs)
        else:
            beyond = beyond or {}
            beyond["common_attn_metadata"] = theirs
            if plan.takes_prefix:
                beyond["common_prefix_len"] = common_prefix_len
            if plan.takes_fast:
                beyond["fast_build"] = fast_build
            made = build(**beyond)
        return made if isinstance(made, self._metadata) else self._refuse("build", made)

    @override
    def build_for_cudagraph_capture(self, common_attn_metadata: CommonAttentionMetadata) -> M:
        """What the foreign builder builds to capture with, or, if it has no such method, its `build`."""
        method: object = getattr(self.foreign, "build_for_cudagraph_capture", None)
        if not callable(method):
            return self.build(0, common_attn_metadata)
        return self._call(
            "build_for_cudagraph_capture", method, {"common_attn_metadata": self._convert(common_attn_metadata)}
        )

    @override
    def build_for_drafting(self, common_attn_metadata: CommonAttentionMetadata, draft_index: int) -> M:
        """What the foreign builder builds for drafting, or, if it has no such method, its fast `build`."""
        method: object = getattr(self.foreign, "build_for_drafting", None)
        if not callable(method):
            return self.build(0, common_attn_metadata, fast_build=True)
        given = {"common_attn_metadata": self._convert(common_attn_metadata), "draft_index": draft_index}
        return self._call("build_for_drafting", method, given)

    @override
    def update_block_table(self, metadata: M, blk_table: Tensor, slot_mapping: Tensor) -> M:
        """The foreign builder's answer.

        Raises:
            NotImplementedError: it has none.
        """
        method: object = getattr(self.foreign, "update_block_table", None)
        if not callable(method):
            return super().update_block_table(metadata, blk_table, slot_mapping)
        given = {"metadata": metadata, "blk_table": blk_table, "slot_mapping": slot_mapping}
        return self._call("update_block_table", method, given)

    def _plan_of(self, build: Callable[..., object]) -> BuildPlan:
        self._plan = self.origin().plan(build)
        self._planned = getattr(build, "__func__", build)
        return self._plan

    def _call(self, name: str, method: Callable[..., object], given: Mapping[str, object]) -> M:
        made = plan_method(self.origin().name, name, method, tuple(given)).call(method, given)
        return made if isinstance(made, self._metadata) else self._refuse(name, made)

    def _refuse(self, method: str, made: object) -> M:
        raise TypeError(
            f"{self.origin().name}.{method} made a {type(made).__qualname__}, but was wrapped with "
            f"metadata={self._metadata.__qualname__}; wrap it with the class that it makes"
        )


def make_builder(foreign: Foreign[M], spec: type[S]) -> type[WrappedBuilder[M, S]]:
    """The class of builders that have ``foreign`` build, for caches described by ``spec``."""

    def body(namespace: dict[str, object]) -> None:
        def origin(cls: type[object]) -> Foreign[M]:
            return foreign

        namespace["__module__"] = __name__
        namespace["__doc__"] = f"Has {foreign.owner.__module__}.{foreign.name} build."
        namespace["origin"] = classmethod(origin)

    # At run time an adapter reads M and S from the base's arguments.
    base = types.GenericAlias(WrappedBuilder, (foreign.metadata, spec))
    made = types.new_class(f"Wrapped{foreign.owner.__name__}", (base,), exec_body=body)
    if not _is_builder(made, foreign, spec):
        raise TypeError(f"{made!r} is no WrappedBuilder")
    return made


def _is_builder(cls: type[object], foreign: Foreign[M], spec: type[S]) -> TypeGuard[type[WrappedBuilder[M, S]]]:
    """Whether ``cls`` was made with these two as arguments of its base."""
    return generic_arguments(cls, WrappedBuilder) == (foreign.metadata, spec)


def _construct(
    origin: Foreign[M], spec: KVCacheSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
) -> ForeignBuilder:
    from vllm.config import set_current_vllm_config

    settings = origin.settings(config, spec, layer_names)
    extra = dict(origin.extra)
    if origin.needs_width():
        extra[BLOCK_TABLE_WIDTH] = _block_table_width(spec, config)
    check_constructor(origin.owner, tuple(extra))
    with set_current_vllm_config(settings):
        return origin.builder(to_vllm_spec(spec), list(layer_names), settings, device, **extra)


def _block_table_width(spec: KVCacheSpec, config: EngineConfig) -> int:
    from vllm.v1.worker.block_table import get_block_table_width

    return get_block_table_width(spec.max_num_blocks_per_req(config, config.max_model_len), spec.block_size)
