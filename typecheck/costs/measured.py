"""What was measured, on disk: one JSON file, with ratios, which hold on any machine, beside the figures of this one."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from genericbuilders.checkers.checker import OutputError
from genericbuilders.checkers.fields import Record, read_json
from typecheck.corpus import Design

__all__ = ["REFERENCE", "Checking", "Costs", "CostsError", "Cost", "Running", "compared", "read_costs", "write_costs"]

REFERENCE = Design.WIDENED
"""The design that ratios are relative to."""


class CostsError(ValueError):
    """The file of costs cannot be read; the message says why and what to do."""


@dataclass(frozen=True)
class Cost:
    """What one thing took under one design.

    Attributes:
        median: over the rounds.
        low: the least.
        high: the most.
        ratio: the median over the rounds of what it took divided by what it took under `REFERENCE` in the same round.
    """

    median: float
    low: float
    high: float
    ratio: float


@dataclass(frozen=True)
class Checking:
    """One checker at one level over each design's files: seconds of its process, and its most resident memory."""

    checker: str
    level: str
    version: str
    seconds: Mapping[Design, Cost]
    mebibytes: Mapping[Design, Cost]

    @property
    def label(self) -> str:
        """Such as ``mypy-strict``."""
        return f"{self.checker}-{self.level}"


@dataclass(frozen=True)
class Running:
    """One operation in each design, in microseconds."""

    operation: str
    microseconds: Mapping[Design, Cost]


@dataclass(frozen=True)
class Costs:
    """All of it.

    Attributes:
        python: the version that ran it, and that the checkers assumed to be installed.
        torch: likewise.
        rounds: runs of each checker.
        samples: samples of each operation.
        checking: by checker and level.
        running: by operation.
        missing: the checkers and levels that gave nothing, each with the reason.
    """

    python: str
    torch: str
    rounds: int
    samples: int
    checking: tuple[Checking, ...]
    running: tuple[Running, ...]
    missing: Mapping[str, str]


def compared(samples: Mapping[Design, Sequence[float]]) -> dict[Design, Cost]:
    """Medians, extremes and ratios of samples taken in turns: the first ones belong together, and so on.

    Raises:
        ValueError: there are not equally many of each, or none of `REFERENCE`.
    """
    reference = samples.get(REFERENCE, ())
    if not reference or {len(each) for each in samples.values()} != {len(reference)}:
        raise ValueError(
            f"samples {[(str(key), len(each)) for key, each in samples.items()]}: as many of each are needed"
        )
    return {
        design: Cost(
            median=_rounded(statistics.median(taken)),
            low=_rounded(min(taken)),
            high=_rounded(max(taken)),
            ratio=_rounded(statistics.median(mine / other for mine, other in zip(taken, reference, strict=True))),
        )
        for design, taken in samples.items()
    }


def write_costs(path: Path, costs: Costs) -> None:
    """Write ``path``; a file that is there is replaced in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(costs), indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)


def read_costs(path: Path) -> Costs:
    """What `write_costs` wrote.

    Raises:
        CostsError: it is missing or malformed.
    """
    try:
        table = read_json(path.read_text(encoding="utf-8"), path.name)
        return Costs(
            python=table.text("python"),
            torch=table.text("torch"),
            rounds=table.whole("rounds"),
            samples=table.whole("samples"),
            checking=tuple(_checking(each) for each in table.records("checking")),
            running=tuple(
                Running(each.text("operation"), _costs(each.record("microseconds")))
                for each in table.records("running")
            ),
            missing={str(key): table.record("missing").text(str(key)) for key in table.record("missing").values},
        )
    except (OSError, OutputError, ValueError) as error:
        raise CostsError(f"{path}: {error}; `python -m typecheck measure` writes it") from None


def _rounded(value: float) -> float:
    """Four digits: there are not more in it."""
    return float(f"{value:.4g}")


def _checking(table: Record) -> Checking:
    return Checking(
        table.text("checker"),
        table.text("level"),
        table.text("version"),
        _costs(table.record("seconds")),
        _costs(table.record("mebibytes")),
    )


def _costs(table: Record) -> dict[Design, Cost]:
    return {Design(str(key)): _cost(table.record(str(key))) for key in table.values}


def _cost(table: Record) -> Cost:
    return Cost(table.number("median"), table.number("low"), table.number("high"), table.number("ratio"))
