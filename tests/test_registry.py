"""The registry's three ways to a back end, and its refusals."""

from __future__ import annotations

import pytest
from toy_backends import CONFIG, FULL_SPEC, STATE_SPEC, DenseBuilder, DenseImpl, dense_adapter, state_adapter

from genericbuilders.adapter import BackendAdapter, BackendUnavailableError
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.registry import DuplicateAdapterError, NoBackendError, Registry


def test_by_name() -> None:
    dense = dense_adapter()
    registry = Registry([dense])
    assert registry.by_name("dense") is dense
    with pytest.raises(NoBackendError, match=r"no adapter is called 'sparse'; there are \['dense'\]"):
        registry.by_name("sparse")


def test_by_adapter_means_that_very_object() -> None:
    dense = dense_adapter()
    registry = Registry([dense])
    assert registry.by_adapter(dense) is dense
    with pytest.raises(NoBackendError):
        registry.by_adapter(dense_adapter())


def test_two_of_one_name_are_refused() -> None:
    registry = Registry([dense_adapter()])
    with pytest.raises(DuplicateAdapterError, match="two adapters are called 'dense'"):
        registry.add(dense_adapter())
    registry.add(next(iter(registry)))
    assert len(list(registry)) == 1


def test_the_first_available_adapter_that_takes_the_spec_is_chosen() -> None:
    absent = BackendAdapter("absent", DenseBuilder, DenseImpl, requires=("no_such_module_here",))
    dense, late, state = dense_adapter(), dense_adapter("late"), state_adapter()
    registry = Registry([absent, dense, late, state])
    assert registry.for_spec(FULL_SPEC).adapter is dense
    assert registry.for_spec(STATE_SPEC).adapter is state
    with pytest.raises(BackendUnavailableError, match="no_such_module_here"):
        registry.by_adapter(absent)


def test_a_capability_narrows_the_choice() -> None:
    registry = Registry([dense_adapter(), state_adapter()])
    chosen = registry.for_spec(FULL_SPEC, config=CONFIG, at_least=AttentionCGSupport.UNIFORM_BATCH)
    assert chosen.adapter.name == "dense"
    with pytest.raises(NoBackendError, match=r"state: its CUDA-graph support is NEVER, less than ALWAYS"):
        registry.for_spec(STATE_SPEC, config=CONFIG, at_least=AttentionCGSupport.ALWAYS)
    with pytest.raises(ValueError, match="needs config"):
        registry.for_spec(FULL_SPEC, at_least=AttentionCGSupport.ALWAYS)


def test_no_adapter_says_why_for_each() -> None:
    with pytest.raises(NoBackendError, match="no adapter for a MambaSpec: dense: takes AttentionSpec"):
        Registry([dense_adapter()]).for_spec(STATE_SPEC)
    with pytest.raises(NoBackendError, match="the registry is empty"):
        Registry().for_spec(STATE_SPEC)
