"""Time of the designs' operations in one process: samples are taken in turns, and figures are medians over them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from time import perf_counter_ns

from typecheck.corpus import Design
from typecheck.costs.measured import REFERENCE, Running, compared

__all__ = ["SAMPLES_A_ROUND", "measure_running"]

SAMPLES_A_ROUND = 20
"""Samples of each operation for each round that is asked for: they are short."""

SAMPLE_NS = 2_000_000
WARM_UP_CALLS = 20


def measure_running(
    operations: Mapping[Design, Mapping[str, Callable[[], object]]], samples: int
) -> tuple[Running, ...]:
    """Time every operation of every design; each sample is many calls in a row.

    Raises:
        ValueError: the designs have not the same operations.
    """
    names = {design: list(each) for design, each in operations.items()}
    if any(each != names.get(REFERENCE) for each in names.values()):
        raise ValueError(f"the designs' operations differ: {names}")
    return tuple(
        Running(name, compared(_samples({design: each[name] for design, each in operations.items()}, samples)))
        for name in names[REFERENCE]
    )


def _samples(operations: Mapping[Design, Callable[[], object]], samples: int) -> dict[Design, list[float]]:
    calls = {design: _calls_in_a_sample(operation) for design, operation in operations.items()}
    found: dict[Design, list[float]] = {design: [] for design in operations}
    designs = list(operations)
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for turn in range(samples):
            first = turn % len(designs)
            for design in designs[first:] + designs[:first]:
                found[design].append(_nanoseconds(operations[design], calls[design]) / calls[design] / 1000)
    finally:
        if collects:
            gc.enable()
    return found


def _calls_in_a_sample(operation: Callable[[], object]) -> int:
    _ = _nanoseconds(operation, WARM_UP_CALLS)
    return max(1, round(SAMPLE_NS * WARM_UP_CALLS / max(1, _nanoseconds(operation, WARM_UP_CALLS))))


def _nanoseconds(operation: Callable[[], object], calls: int) -> int:
    repeat = range(calls)
    start = perf_counter_ns()
    for _ in repeat:
        _ = operation()
    return perf_counter_ns() - start
