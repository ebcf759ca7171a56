"""``run`` and ``validate``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from genericbuilders.checkers import Checker, Level, NotFoundError, OverrideError, Run
from typecheck.corpus import Corpus, CorpusError, read_corpus
from typecheck.explain import MYPY, PYRIGHT, ExplanationError, check_explanations, read_causes
from typecheck.marks import FILE, Marked, MarksError, marks_of, moved, read_marks, write_marks
from typecheck.pins import PINS, PinError, others, read_pins
from typecheck.results import ResultsError, differences, read_results, unknown_files, unlike, write_result
from typecheck.study import FOLDER, Outcome, UnknownNameError, labels, measure, pairs
from typecheck.verdict import Result

__all__ = ["run_and_compare", "run_and_write"]

DIFFERENCES = "differences.toml"
# What the study's files, or the call, can be wrong in; each says so in a line.
MISTAKES = (
    CorpusError,
    ExplanationError,
    MarksError,
    OverrideError,
    PinError,
    ResultsError,
    UnknownNameError,
)


def run_and_write(only: Sequence[str], jobs: int, folder: Path = FOLDER) -> int:
    """Measure and rewrite results; the exit code: 0, 1 where a checker gave no result, 2 on bad input.

    Args:
        only: checkers, and levels such as ``mypy-strict``; empty: all.
        jobs: processes at a time.
        folder: the study's.
    """

    def write(say: Callable[[str], None]) -> int:
        wanted, corpus = _asked(only), read_corpus(folder)
        pins = read_pins(folder / PINS)
        outcome = _measured(say, corpus, wanted, jobs)
        results = folder / "results"
        paths = [write_result(results, result) for result in outcome.results]
        for path in (*paths, write_marks(results, marks_of(corpus))):
            say(f"wrote {path.relative_to(folder.parent)}")
        for line in others(pins, outcome.results):
            say(line)
        return 1 if outcome.failed else 0

    return _told(write)


def run_and_compare(only: Sequence[str], jobs: int, folder: Path = FOLDER) -> int:
    """Measure and compare; the exit code: 0 where nothing differs, 1 where something does, 2 on bad input.

    Args:
        only: checkers, and levels such as ``mypy-strict``; empty: all.
        jobs: processes at a time.
        folder: the study's.
    """

    def compare(say: Callable[[str], None]) -> int:
        wanted, corpus = _asked(only), read_corpus(folder)
        committed = _committed(folder, corpus, [checker.label(level) for checker, level in wanted])
        found = moved(committed.marks, marks_of(corpus)) + unknown_files(
            folder / "results", [*labels(), Path(FILE).stem]
        )
        outcome = _measured(say, corpus, wanted, jobs)
        for result in outcome.results:
            found += differences(committed.results[result.label], result)
        found += others(committed.pins, outcome.results)
        if {MYPY, PYRIGHT} <= committed.results.keys():
            found += check_explanations(folder / DIFFERENCES, list(committed.results.values()))
        for line in found:
            say(line)
        if found:
            say(f"{len(found)} differences from {(folder / 'results').relative_to(folder.parent)}")
        return 1 if found or outcome.failed else 0

    return _told(compare)


@dataclass(frozen=True)
class _Committed:
    """What is written down; read whole before checkers run, which takes minutes."""

    results: dict[str, Result]
    marks: dict[str, Marked]
    pins: dict[str, str]


def _committed(folder: Path, corpus: Corpus, wanted: Sequence[str]) -> _Committed:
    results = folder / "results"
    found = {result.label: result for result in read_results(results, wanted)}
    for label, result in found.items():
        if how := unlike(corpus, result):
            raise ResultsError(f"{results / label}.toml: it {how}; `python -m typecheck run` measures it again")
    if {MYPY, PYRIGHT} <= found.keys():
        _ = read_causes(folder / DIFFERENCES)
    return _Committed(found, read_marks(results), read_pins(folder / PINS))


def _told(work: Callable[[Callable[[str], None]], int]) -> int:
    """Do it; what is wrong with the study's files is told in a line, and is exit code 2."""
    console = Console(stderr=True)

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    try:
        return work(say)
    except MISTAKES as error:
        say(str(error.args[0]), "red")
    except OSError as error:
        say(f"{error.filename or 'the study'}: {error.strerror or error}", "red")
    return 2


def _asked(only: Iterable[str]) -> list[tuple[Checker, Level]]:
    wanted = pairs(only)
    for checker in dict.fromkeys(checker for checker, _ in wanted):
        try:
            _ = checker.locate()
        except OverrideError:
            raise
        except NotFoundError:
            continue
    return wanted


def _measured(
    say: Callable[[str], None], corpus: Corpus, wanted: Sequence[tuple[Checker, Level]], jobs: int
) -> Outcome:
    cases = sum(len(fault.cases) for fault in corpus.faults)
    size = f"{len(corpus.faults)} faults in {cases} files, {len(corpus.variants)} variants"
    say(f"{size}, {len(corpus.files)} files")

    def finished(run: Run) -> None:
        ending = f"{run.seconds:.1f} s" if run.status == "ok" else f"{run.status}: {run.reason}"
        say(f"{run.label} {run.version or ''} {ending}")

    return measure(corpus, wanted, jobs, finished)
