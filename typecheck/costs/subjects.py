"""Each design's own way to bind a group, to build a batch and to read a layer's metadata, ready to be timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from genericbuilders.adapter import Group
from genericbuilders.config import EngineConfig
from genericbuilders.specs import KVCacheSpec
from typecheck.corpus import Design
from typecheck.designs.asserting import attention as asserting_attention
from typecheck.designs.asserting import core as asserting_core
from typecheck.designs.asserting import plugin as asserting_plugin
from typecheck.designs.asserting import runner as asserting_runner
from typecheck.designs.asserting import state as asserting_state
from typecheck.designs.covariant import attention as covariant_attention
from typecheck.designs.covariant import core as covariant_core
from typecheck.designs.covariant import plugin as covariant_plugin
from typecheck.designs.covariant import runner as covariant_runner
from typecheck.designs.covariant import state as covariant_state
from typecheck.designs.generic import attention as generic_attention
from typecheck.designs.generic import core as generic_core
from typecheck.designs.generic import plugin as generic_plugin
from typecheck.designs.generic import runner as generic_runner
from typecheck.designs.generic import state as generic_state
from typecheck.designs.shared.batch import (
    CONFIG,
    CPU,
    FULL_SPEC,
    HEADS,
    MLA_SPEC,
    STATE_SPEC,
    UNIFORM_SPEC,
    two_requests,
)
from typecheck.designs.shared.metadata import Mamba2Metadata
from typecheck.designs.widened import attention as widened_attention
from typecheck.designs.widened import core as widened_core
from typecheck.designs.widened import plugin as widened_plugin
from typecheck.designs.widened import runner as widened_runner
from typecheck.designs.widened import state as widened_state

__all__ = ["Subject", "subjects"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)
B = TypeVar("B")
G = TypeVar("G")
Place = Callable[[B, KVCacheSpec, Sequence[str], EngineConfig, torch.device], G]


@dataclass(frozen=True)
class Subject:
    """One design's operations; those of the same name do the same work in every design.

    Attributes:
        bind: makes a bound group, by back end.
        build: makes one batch's metadata for a group of every back end.
        read: gets the Mamba2 layer's metadata out of that, at its own type, and reads it.
    """

    bind: Mapping[str, Callable[[], object]]
    build: Callable[[], object]
    read: Callable[[], int]

    @property
    def operations(self) -> dict[str, Callable[[], object]]:
        """All of them by name."""
        bind = {f"bind {name}": operation for name, operation in self.bind.items()}
        return {**bind, "build a batch": self.build, "read a layer's metadata": self.read}


def subjects() -> dict[Design, Subject]:
    """Every design's."""
    return {
        Design.ASSERTING: _asserting(),
        Design.WIDENED: _widened(),
        Design.GENERIC: _generic(),
        Design.COVARIANT: _covariant(),
    }


def _asserting() -> Subject:
    def bound(
        backend: type[asserting_core.AttentionBackend], spec: KVCacheSpec
    ) -> Callable[[], asserting_core.AttentionGroup]:
        return _binder(asserting_core.AttentionGroup, backend, backend.get_name(), spec)

    bind = {
        "full": bound(asserting_attention.FullBackend, FULL_SPEC),
        "mla": bound(asserting_attention.MLABackend, MLA_SPEC),
        "flashinfer": bound(asserting_attention.FlashInferBackend, UNIFORM_SPEC),
        "mamba2": bound(asserting_state.Mamba2Backend, STATE_SPEC),
        "gdn": bound(asserting_state.GDNBackend, STATE_SPEC),
        "linear": bound(asserting_state.LinearBackend, STATE_SPEC),
        "paged_tree": bound(asserting_plugin.PagedTreeBackend, FULL_SPEC),
    }
    runner, batch = asserting_runner.Runner([make() for make in bind.values()]), two_requests()
    return Subject(bind, lambda: runner.build(batch), _reader_by_name(runner.build(batch)))


def _widened() -> Subject:
    def bound(
        backend: type[widened_core.AttentionBackend], spec: KVCacheSpec
    ) -> Callable[[], widened_core.AttentionGroup]:
        return _binder(widened_core.AttentionGroup, backend, backend.get_name(), spec)

    bind = {
        "full": bound(widened_attention.FullBackend, FULL_SPEC),
        "mla": bound(widened_attention.MLABackend, MLA_SPEC),
        "flashinfer": bound(widened_attention.FlashInferBackend, UNIFORM_SPEC),
        "mamba2": bound(widened_state.Mamba2Backend, STATE_SPEC),
        "gdn": bound(widened_state.GDNBackend, STATE_SPEC),
        "linear": bound(widened_state.LinearBackend, STATE_SPEC),
        "paged_tree": bound(widened_plugin.PagedTreeBackend, FULL_SPEC),
    }
    runner, batch = widened_runner.Runner([make() for make in bind.values()]), two_requests()
    return Subject(bind, lambda: runner.build(batch), _reader_by_name(runner.build(batch)))


def _generic() -> Subject:
    def bound(adapter: generic_core.BackendAdapter[M, S], spec: S) -> Callable[[], Group]:
        layers = [adapter.layer(adapter.name, HEADS)]
        return lambda: adapter.bind(spec, layers, CONFIG, CPU)

    bind = {
        "full": bound(generic_attention.FULL, FULL_SPEC),
        "mla": bound(generic_attention.MLA, MLA_SPEC),
        "flashinfer": bound(generic_attention.FLASHINFER, UNIFORM_SPEC),
        "mamba2": bound(generic_state.MAMBA2, STATE_SPEC),
        "gdn": bound(generic_state.GDN, STATE_SPEC),
        "linear": bound(generic_state.LINEAR, STATE_SPEC),
        "paged_tree": bound(generic_plugin.PAGED_TREE, FULL_SPEC),
    }
    mixer = generic_state.MAMBA2.layer("mixer", HEADS)
    read_by = generic_state.MAMBA2.bind(STATE_SPEC, [mixer], CONFIG, CPU)
    runner, batch = generic_runner.Runner([make() for make in bind.values()]), two_requests()
    step = generic_core.Step()
    read_by.build(batch, step)
    return Subject(bind, lambda: runner.build(batch), lambda: step[mixer].num_states)


def _covariant() -> Subject:
    def bound(adapter: covariant_core.BackendAdapter[M, S], spec: S) -> Callable[[], Group]:
        layers = [adapter.layer(adapter.name, HEADS)]
        return lambda: adapter.bind(spec, layers, CONFIG, CPU)

    bind = {
        "full": bound(covariant_attention.FULL, FULL_SPEC),
        "mla": bound(covariant_attention.MLA, MLA_SPEC),
        "flashinfer": bound(covariant_attention.FLASHINFER, UNIFORM_SPEC),
        "mamba2": bound(covariant_state.MAMBA2, STATE_SPEC),
        "gdn": bound(covariant_state.GDN, STATE_SPEC),
        "linear": bound(covariant_state.LINEAR, STATE_SPEC),
        "paged_tree": bound(covariant_plugin.PAGED_TREE, FULL_SPEC),
    }
    mixer = covariant_state.MAMBA2.layer("mixer", HEADS)
    read_by = covariant_state.MAMBA2.bind(STATE_SPEC, [mixer], CONFIG, CPU)
    runner, batch = covariant_runner.Runner([make() for make in bind.values()]), two_requests()
    step = covariant_core.Step()
    read_by.build(batch, step)
    return Subject(bind, lambda: runner.build(batch), lambda: step[mixer].num_states)


def _binder(place: Place[B, G], backend: B, name: str, spec: KVCacheSpec) -> Callable[[], G]:
    names = [name]
    return lambda: place(backend, spec, names, CONFIG, CPU)


def _reader_by_name(step: Mapping[str, object]) -> Callable[[], int]:
    def read() -> int:
        metadata = step["mamba2"]
        assert isinstance(metadata, Mamba2Metadata)  # noqa: S101 - that is what is timed: these designs' layers do so
        return metadata.num_states

    return read
