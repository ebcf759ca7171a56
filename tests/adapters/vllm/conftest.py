"""The stand-in for vLLM, for every test here."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from fake_vllm import installed


@pytest.fixture(autouse=True)
def fake_vllm() -> Generator[None]:
    with installed():
        yield
