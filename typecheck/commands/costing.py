"""``measure``."""

from __future__ import annotations

import platform
from importlib.metadata import version

import torch
from rich.console import Console

from typecheck.corpus import CorpusError, read_corpus
from typecheck.costs.checking import measure_checking
from typecheck.costs.measured import Costs, write_costs
from typecheck.costs.running import SAMPLES_A_ROUND, measure_running
from typecheck.costs.subjects import subjects
from typecheck.study import FOLDER, RESULTS, pairs

__all__ = ["COSTS", "measure_and_write"]

COSTS = RESULTS / "costs.json"


def measure_and_write(rounds: int) -> int:
    """Measure and write; the exit code: 0, 1 where a checker gave nothing, 2 where the study cannot be read."""
    console = Console(stderr=True)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    try:
        programs = read_corpus(FOLDER).programs
    except CorpusError as error:
        say(str(error))
        return 2
    torch.set_num_threads(1)
    operations = {design: subject.operations for design, subject in subjects().items()}
    samples = rounds * SAMPLES_A_ROUND
    running = measure_running(operations, samples)
    own = {design: [path for path in paths if path.parent.name == design] for design, paths in programs.items()}
    measured = measure_checking(own, pairs(), rounds, say)
    costs = Costs(
        platform.python_version(), version("torch"), rounds, samples, measured.checking, running, measured.missing
    )
    write_costs(COSTS, costs)
    say(f"wrote {COSTS.relative_to(FOLDER.parent)}")
    return 1 if measured.missing else 0
