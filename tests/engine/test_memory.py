"""Memory beyond weights and pool does not grow with the number of requests that were served.

Each case serves in a process of its own, since memory that other tests have freed would hide growth.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import serve_waves
from serve_waves import BUFFER_BYTES, Report

NUM_REQUESTS = 2000 // serve_waves.WAVE * serve_waves.WAVE
# Anything kept of a request costs more than 32 bytes of Python objects: its id alone takes 60 as a string, and 8 more
# where it is held. numpy, torch and transformers fill caches of their own, of fixed sizes, for some time after the
# warm-up; that came to 20 to 30 KB in all, 10 to 15 bytes a request.
PYTHON_BYTES_PER_REQUEST = 32
# The smallest thing that a request has outside of Python's heap is a cache block; in real models that is above 4 KiB
# (16 tokens, keys and values, one head of 64, bfloat16). The system counts pages of 4 KiB, and an allocator may take
# some more of them for what it has split or rounded up, 0.04 to 0.7 MB in all. A quarter of that leak is 2 MB over 2,000
# requests: above the noise, and well below the leak, which is 8 MB.
RESIDENT_BYTES_PER_REQUEST = BUFFER_BYTES // 4


def serve(num_requests: int, leak: str = "none") -> Report:
    command = [sys.executable, str(Path(serve_waves.__file__)), str(num_requests), leak]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    # Freed memory goes back in the same way on every machine: one arena, and large tensors mapped on their own.
    environment |= {"MALLOC_ARENA_MAX": "1"}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=600)
    report: Report = json.loads(ended.stdout)
    return report


def growth(report: Report, num_requests: int) -> tuple[float, float]:
    """Bytes gained for each request: of Python objects, and resident ones."""
    before, after = report["before"], report["after"]
    return (
        (after["traced"] - before["traced"]) / num_requests,
        (after["resident"] - before["resident"]) / num_requests,
    )


def test_memory_does_not_grow_with_the_requests_served() -> None:
    report = serve(NUM_REQUESTS)
    traced, resident = growth(report, NUM_REQUESTS)
    assert traced < PYTHON_BYTES_PER_REQUEST
    assert resident < RESIDENT_BYTES_PER_REQUEST
    # The pool was allocated once, everything was given back, and prefix caching did both find and evict.
    assert report["after"]["caches"] == report["before"]["caches"]
    assert report["num_free_blocks"] == report["num_usable_blocks"]
    assert report["num_cached_tokens"] > 0
    assert 0 < report["num_cached_blocks"] <= report["num_usable_blocks"]


@pytest.mark.slow
def test_a_completion_kept_of_each_request_would_be_seen() -> None:
    traced, _ = growth(serve(NUM_REQUESTS, "completion"), NUM_REQUESTS)
    assert traced > 2 * PYTHON_BYTES_PER_REQUEST


@pytest.mark.slow
def test_a_buffer_kept_of_each_request_would_be_seen() -> None:
    _, resident = growth(serve(NUM_REQUESTS, "buffer"), NUM_REQUESTS)
    assert resident > 2 * RESIDENT_BYTES_PER_REQUEST
