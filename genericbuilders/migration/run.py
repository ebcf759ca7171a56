"""One run of the codemod: reads files, has the engine rewrite their text, and puts together what came of it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from typing_extensions import override

from genericbuilders.migration.files import Failure, Found, RefusedError, SourceFile, read
from genericbuilders.migration.result import FileResult, Target
from genericbuilders.migration.workers import Crash, Method, call_each

__all__ = ["Engine", "Progress", "Project", "Run", "Stage", "run"]

ProjectT = TypeVar("ProjectT", bound="Project")
# With fewer files, starting processes takes longer than they save.
MIN_FILES = 8
# Calls within calls; a level of an expression takes some six.
MAX_DEPTH = 10_000


class Project(Protocol):
    """All files of a run, as the engine knows them."""

    @property
    def unparsed(self) -> Mapping[Path, str]:
        """Files that do not parse, and why."""
        ...

    def relevant(self) -> Sequence[Path]:
        """Files in which something could change."""
        ...


@dataclass(frozen=True)
class Engine(Generic[ProjectT]):
    """What rewrites text: ``read`` looks at all files at once, ``migrate`` rewrites one."""

    read: Callable[[Mapping[Path, str]], ProjectT]
    migrate: Callable[[ProjectT, Path, Target], FileResult]


class Stage(StrEnum):
    """What a run is doing."""

    READING = "reading files"
    SEARCHING = "looking for builders"
    MIGRATING = "migrating"


Progress = Callable[[Stage, int, int], None]


@dataclass(frozen=True)
class Run:
    """What came of a run; nothing is written yet.

    Attributes:
        sources: the files that were read, in order.
        results: the files in which there was something to say, in order.
        failures: files that were skipped, or in which the engine broke down, in order, with reasons.
    """

    sources: Mapping[Path, SourceFile]
    results: tuple[FileResult, ...]
    failures: tuple[Failure, ...]

    @property
    def changed(self) -> tuple[FileResult, ...]:
        """The files that would be rewritten."""
        return tuple(result for result in self.results if result.changed)


def run(
    engine: Engine[ProjectT],
    found: Found,
    target: Target,
    progress: Progress | None = None,
    workers: int | None = None,
    method: Method | None = None,
) -> Run:
    """Read the files and rewrite their text in memory.

    Args:
        engine: what rewrites it.
        found: the files.
        target: what builders are rewritten to.
        progress: told the stage, how many of its files are done, and how many there are.
        workers: processes; ``None``: one for each CPU, and none for a few files.
        method: of starting them; ``None``: what suits the system.

    Raises:
        KeyboardInterrupt: Ctrl-C; no process is left.
    """
    tell = progress or _silent
    sources, failures = _read_all(found, tell)
    texts = {path: source.text for path, source in sources.items()}
    tell(Stage.SEARCHING, 0, len(texts))
    project, broken = _understand(engine, _Counted(texts, tell))
    failures.update(broken)
    failures.update((path, f"it does not parse: {why}") for path, why in project.unparsed.items())
    relevant = sorted({path for path in project.relevant() if path in sources and path not in failures})
    # The longest first, so that none is left to the end.
    relevant.sort(key=lambda path: -len(texts[path]))
    tell(Stage.MIGRATING, 0, len(relevant))
    count = workers or (1 if len(relevant) < MIN_FILES else os.cpu_count() or 1)
    answers = call_each(
        partial(_migrate, engine.migrate, project, target),
        relevant,
        count,
        lambda done: tell(Stage.MIGRATING, done, len(relevant)),
        method,
    )
    results: list[FileResult] = []
    for path, answer in zip(relevant, answers, strict=True):
        if isinstance(answer, Crash):
            failures[path] = f"a fault of this program, please report it: {answer.reason}"
        elif isinstance(answer, Failure):
            failures[path] = answer.reason
        elif why := _unwritable(sources[path], answer):
            failures[path] = why
        elif answer.changed or answer.classes or answer.findings:
            results.append(answer)
    results.sort(key=lambda result: result.path)
    return Run(sources, tuple(results), tuple(Failure(path, failures[path]) for path in sorted(failures)))


class _Counted(Mapping[Path, str]):
    """Texts that tell how many of them were taken, when they are gone through for the first time."""

    def __init__(self, texts: Mapping[Path, str], tell: Progress) -> None:
        self._texts = texts
        self._tell: Progress | None = tell

    @override
    def __getitem__(self, key: Path) -> str:
        return self._texts[key]

    @override
    def __len__(self) -> int:
        return len(self._texts)

    @override
    def __iter__(self) -> Iterator[Path]:
        tell, self._tell = self._tell, None
        for number, path in enumerate(self._texts, 1):
            yield path
            if tell is not None:
                tell(Stage.SEARCHING, number, len(self._texts))

    @override
    def __reduce__(self) -> tuple[type[dict[Path, str]], tuple[Mapping[Path, str]]]:
        # Another process has nobody to tell.
        return dict, (self._texts,)


def _read_all(found: Found, tell: Progress) -> tuple[dict[Path, SourceFile], dict[Path, str]]:
    sources: dict[Path, SourceFile] = {}
    failures = {failure.path: failure.reason for failure in found.failures}
    for number, path in enumerate(found.files, 1):
        try:
            sources[path] = read(path)
        except RefusedError as error:
            failures[path] = str(error)
        tell(Stage.READING, number, len(found.files))
    return sources, failures


def _understand(engine: Engine[ProjectT], texts: Mapping[Path, str]) -> tuple[ProjectT, dict[Path, str]]:
    """The project of all files but those on which the engine breaks down alone."""
    try:
        return engine.read(texts), {}
    except Exception:
        broken = {path: why for path, text in texts.items() if (why := _breaks(engine, path, text)) is not None}
    return engine.read({path: text for path, text in texts.items() if path not in broken}), broken


def _breaks(engine: Engine[ProjectT], path: Path, text: str) -> str | None:
    try:
        engine.read({path: text})
    except Exception as error:
        return f"a fault of this program, please report it: {type(error).__name__}: {error}"
    return None


def _migrate(
    migrate: Callable[[ProjectT, Path, Target], FileResult], project: ProjectT, target: Target, path: Path
) -> FileResult | Failure:
    with _deep_enough():
        try:
            result = migrate(project, path, target)
        except RecursionError:
            return Failure(path, "it is nested too deeply to be rewritten; split its longest expression or elif chain")
        broken = _compiles(result.after, path) if result.changed and _compiles(result.before, path) is None else None
    if broken is not None:
        raise ValueError(f"what it was rewritten to does not compile: {broken}")
    return result


@contextmanager
def _deep_enough() -> Generator[None, None, None]:
    """Lets long sums and chains of calls be walked, which are nested as deep as they are long."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, MAX_DEPTH))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _compiles(text: str, path: Path) -> str | None:
    """Why Python cannot compile a text; ``None``: it can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text, str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            return f"{error.msg}, line {error.lineno}"
        except (ValueError, RecursionError, MemoryError) as error:
            return str(error)
    return None


def _unwritable(source: SourceFile, result: FileResult) -> str | None:
    if not result.changed:
        return None
    try:
        source.encode(result.after)
    except RefusedError as error:
        return str(error)
    return None


def _silent(stage: Stage, done: int, total: int) -> None:
    del stage, done, total
