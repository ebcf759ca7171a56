"""Serves many requests in a process of its own and prints what memory it takes before and after, as JSON.

    python serve_waves.py NUM_REQUESTS LEAK

``LEAK`` says what is kept of each request, to see that the measure would show it: ``none``, ``completion`` (a Python
object) or ``buffer`` (4 KiB outside of Python's heap).
"""

from __future__ import annotations

import gc
import json
import random
import sys
import tracemalloc
from typing import TypedDict

import psutil
import torch
from tiny_models import tiny_engine, tiny_model

from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import Completion, SamplingParams
from genericbuilders.engine.setup import EngineOptions

__all__ = ["BUFFER_BYTES", "WARM_UP", "WAVE", "Footprint", "Report"]

WAVE = 32
WARM_UP = 24 * WAVE
BUFFER_BYTES = 4096


class Footprint(TypedDict):
    """What the process takes.

    ``resident`` are bytes as the system counts them, ``traced`` bytes of live Python objects, ``caches`` the address of
    each layer's cache.
    """

    resident: int
    traced: int
    caches: list[int]


class Report(TypedDict):
    """The footprint after the warm-up and at the end, and counts that show what was served."""

    before: Footprint
    after: Footprint
    num_cached_tokens: int
    num_usable_blocks: int
    num_cached_blocks: int
    num_free_blocks: int


class _Server:
    def __init__(self, leak: str) -> None:
        options = EngineOptions(
            block_size=4, num_blocks=257, max_num_seqs=WAVE, max_num_batched_tokens=256, max_model_len=64
        )
        self.engine: Engine = tiny_engine(tiny_model(), options)
        self.pool = self.engine.runner.coordinator.managers[0].pool
        self.leak = leak
        self.kept: list[Completion | torch.Tensor] = []
        self.num_served = 0
        self.rng = random.Random(0)

    def serve(self, num_waves: int) -> None:
        """Serve waves whose prompts are new, some sharing a start, and whose lengths are the same in every wave.

        So a wave's batches have as many rows as the last one's: oneDNN keeps a compiled kernel for each number of rows
        that it has met (up to 1,024 kernels), and after the warm-up it meets no new one.
        """
        for _ in range(num_waves):
            shared = self._tokens(8)
            for index in range(WAVE):
                own = self._tokens(4 + index % 13)
                params = SamplingParams(max_tokens=2 + index % 5, ignore_eos=True)
                self.engine.add_request(f"request-{self.num_served}", shared + own if index % 2 else own, params)
                self.num_served += 1
            for event in self.engine.stream():
                if event.completion is not None:
                    self._finished(event.completion)

    def footprint(self) -> Footprint:
        """The footprint now."""
        gc.collect()
        return Footprint(
            resident=psutil.Process().memory_info().rss,
            traced=tracemalloc.get_traced_memory()[0],
            caches=[cache.data_ptr() for cache in self.engine.runner.kv_caches.values()],
        )

    def _tokens(self, count: int) -> list[int]:
        return [self.rng.randrange(97) for _ in range(count)]

    def _finished(self, completion: Completion) -> None:
        if self.leak == "completion":
            self.kept.append(completion)
        elif self.leak == "buffer":
            self.kept.append(torch.ones(BUFFER_BYTES, dtype=torch.int8))


def main() -> None:
    """Serve, and print a `Report`."""
    num_requests, leak = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    tracemalloc.start()
    server = _Server(leak)
    server.serve(WARM_UP // WAVE)
    before = server.footprint()
    server.serve(num_requests // WAVE)
    after = server.footprint()
    report = Report(
        before=before,
        after=after,
        num_cached_tokens=server.engine.stats.num_cached_tokens,
        num_usable_blocks=server.pool.num_usable_blocks,
        num_cached_blocks=server.pool.num_cached_blocks,
        num_free_blocks=server.pool.num_free_blocks,
    )
    print(json.dumps(report))


if __name__ == "__main__":
    main()
