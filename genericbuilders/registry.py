"""Back ends by adapter, by name and by spec."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from typing_extensions import TypeVar

from genericbuilders.adapter import Adapter, BackendUnavailableError, Group, Layer
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import EngineConfig
from genericbuilders.keys import Key
from genericbuilders.specs import KVCacheSpec

__all__ = ["DuplicateAdapterError", "NoBackendError", "Registry", "Selection", "SpecGroup"]

A = TypeVar("A", bound=Adapter)
S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)


class DuplicateAdapterError(ValueError):
    """Two adapters of one registry have the same name."""


class NoBackendError(LookupError):
    """No adapter answers to what was asked."""


@dataclass(frozen=True)
class SpecGroup(Generic[S]):
    """A group whose spec is known and whose metadata type is not."""

    spec: S
    group: Group


@dataclass(frozen=True)
class Selection(Generic[S]):
    """An adapter that was chosen for a spec."""

    spec: S
    adapter: Adapter

    def bind(
        self,
        layers: Sequence[Layer],
        config: EngineConfig,
        device: torch.device,
        provided: Collection[Key] = (),
    ) -> SpecGroup[S]:
        """`Adapter.bind_any` with the spec that the adapter was chosen for."""
        return SpecGroup(self.spec, self.adapter.bind_any(self.spec, layers, config, device, provided))


class Registry:
    """The back ends of one run, in the order in which they were added; the first that fits a spec is taken."""

    def __init__(self, adapters: Iterable[Adapter] = ()) -> None:
        self._adapters: dict[str, Adapter] = {}
        for adapter in adapters:
            self.add(adapter)

    def add(self, adapter: Adapter) -> None:
        """Add an adapter.

        Raises:
            DuplicateAdapterError: another adapter has its name.
        """
        held = self._adapters.setdefault(adapter.name, adapter)
        if held is not adapter:
            raise DuplicateAdapterError(
                f"two adapters are called {adapter.name!r}: {held!r} and {adapter!r}; "
                "rename one, or add only one of them"
            )

    def __iter__(self) -> Iterator[Adapter]:
        return iter(self._adapters.values())

    def __contains__(self, adapter: Adapter) -> bool:
        return self._adapters.get(adapter.name) is adapter

    def by_name(self, name: str) -> Adapter:
        """The adapter that a configuration calls ``name``; its types are not known.

        Raises:
            NoBackendError: there is none.
        """
        try:
            return self._adapters[name]
        except KeyError:
            raise NoBackendError(f"no adapter is called {name!r}; there are {sorted(self._adapters)}") from None

    def by_adapter(self, adapter: A) -> A:
        """``adapter`` itself, at its types, if it is held and can run here.

        Raises:
            NoBackendError: it is not held.
            BackendUnavailableError: a module that it requires is not installed.
        """
        if adapter not in self:
            raise NoBackendError(
                f"adapter {adapter.name!r} is not in this registry; there are {sorted(self._adapters)}"
            )
        reason = adapter.unavailable()
        if reason is not None:
            raise BackendUnavailableError(f"adapter {adapter.name!r} {reason}")
        return adapter

    def for_spec(
        self,
        spec: S,
        *,
        config: EngineConfig | None = None,
        at_least: AttentionCGSupport = AttentionCGSupport.NEVER,
    ) -> Selection[S]:
        """The first available adapter that takes ``spec``, whose type is kept.

        Args:
            spec: what the layers' caches hold.
            config: the run's settings; needed to ask for graph support.
            at_least: the CUDA-graph support that the adapter must have.

        Raises:
            NoBackendError: none takes it; for each adapter the message says why not.
            ValueError: ``at_least`` without ``config``.
        """
        if at_least > AttentionCGSupport.NEVER and config is None:
            raise ValueError(f"at_least={at_least.name} needs config=..., since graph support depends on it")
        refusals: list[str] = []
        for adapter in self:
            refusal = self._refusal(adapter, spec, config, at_least)
            if refusal is None:
                return Selection(spec, adapter)
            refusals.append(f"{adapter.name}: {refusal}")
        raise NoBackendError(
            f"no adapter for a {type(spec).__name__}: {'; '.join(refusals) or 'the registry is empty'}"
        )

    @staticmethod
    def _refusal(
        adapter: Adapter, spec: KVCacheSpec, config: EngineConfig | None, at_least: AttentionCGSupport
    ) -> str | None:
        if not adapter.takes(spec):
            return "takes " + " or ".join(spec_type.__name__ for spec_type in adapter.spec_types)
        if adapter.reads is not None:
            return f"reads caches that {adapter.reads.name} has stored, and has none"
        reason = adapter.unavailable()
        if reason is not None:
            return reason
        if config is not None:
            support = adapter.cudagraph_support(config, spec)
            if support < at_least:
                return f"its CUDA-graph support is {support.name}, less than {at_least.name}"
        return None
