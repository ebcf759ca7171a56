"""``run`` and ``validate``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from genericbuilders.checkers import Run
from typecheck.corpus import Corpus, CorpusError, read_corpus
from typecheck.explain import ExplanationError, check_explanations
from typecheck.results import ResultsError, differences, read_results, write_result
from typecheck.study import FOLDER, RESULTS, Outcome, measure, pairs

__all__ = ["run_and_compare", "run_and_write"]


def run_and_write(only: Sequence[str], jobs: int) -> int:
    """Measure and rewrite results; the exit code: 0, 1 where a checker gave no result, 2 on bad input."""
    console = Console(stderr=True)
    outcome = _measured(console, only, jobs)
    if outcome is None:
        return 2
    for result in outcome.results:
        console.print(f"wrote {write_result(RESULTS, result).relative_to(FOLDER.parent)}", highlight=False)
    return 1 if outcome.failed else 0


def run_and_compare(only: Sequence[str], jobs: int) -> int:
    """Measure and compare; the exit code: 0 where nothing differs, 1 where something does, 2 on bad input."""
    console = Console(stderr=True)
    outcome = _measured(console, only, jobs)
    if outcome is None:
        return 2
    try:
        committed = read_results(RESULTS, [result.label for result in outcome.results])
        lines = [line for old, new in zip(committed, outcome.results, strict=True) for line in differences(old, new)]
        if not only:
            lines += check_explanations(FOLDER / "differences.toml", committed)
    except (ResultsError, ExplanationError) as error:
        console.print(str(error), style="red", highlight=False, markup=False, soft_wrap=True)
        return 1
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if lines:
        console.print(f"{len(lines)} differences from {RESULTS.relative_to(FOLDER.parent)}", style="red")
    return 1 if lines or outcome.failed else 0


def _measured(console: Console, only: Sequence[str], jobs: int) -> Outcome | None:
    try:
        wanted = pairs(only)
        corpus = read_corpus(FOLDER)
    except (LookupError, CorpusError) as error:
        console.print(str(error.args[0]), style="red", highlight=False, markup=False, soft_wrap=True)
        return None
    console.print(_size(corpus), highlight=False)

    def finished(run: Run) -> None:
        ending = f"{run.seconds:.1f} s" if run.status == "ok" else f"{run.status}: {run.reason}"
        console.print(f"{run.label} {run.version or ''} {ending}", highlight=False, markup=False, soft_wrap=True)

    return measure(corpus, wanted, jobs, finished)


def _size(corpus: Corpus) -> str:
    cases = sum(len(fault.cases) for fault in corpus.faults)
    return f"{len(corpus.faults)} faults in {cases} files, {len(corpus.variants)} variants, {len(corpus.files)} files"
