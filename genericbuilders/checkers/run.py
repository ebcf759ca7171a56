"""Run checkers over files: each checker and level is one process, several at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from genericbuilders.checkers.checker import (
    Checker,
    Command,
    Level,
    NotFoundError,
    Output,
    OutputError,
    OverrideError,
    Request,
)
from genericbuilders.checkers.diagnostic import Diagnostic, Severity
from genericbuilders.checkers.process import Stopped, execute

__all__ = ["Run", "Status", "check", "check_all"]

VERSION_TIME_LIMIT = 30.0
MAX_VERSION_LENGTH = 40
PATTERN = frozenset("*?[]")
STDERR_LINES = 8


class Status(StrEnum):
    """How a run ended.

    ``blocked``: the checker gave up before it had seen every file, as mypy does at a syntax error; what it had reported
    until then is kept, and files without a report have no result.
    """

    OK = "ok"
    MISSING = "missing"
    BLOCKED = "blocked"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True)
class Run:
    """One checker at one level over one request.

    Attributes:
        checker: the checker's name.
        level: the level's name.
        version: the checker's; ``None`` where it could not be found out.
        status: how the run ended.
        reason: why, unless it is ``ok``; then ``None``.
        diagnostics: in the order of the request's files, by line within each.
        dropped: reports on files that were not asked for.
        counts_warnings: whether warnings fail a run at this level.
        seconds: wall-clock time of the process.
        peak_bytes: the most resident memory of its biggest process; 0 where it did not end by itself.
    """

    checker: str
    level: str
    version: str | None
    status: Status
    reason: str | None
    diagnostics: tuple[Diagnostic, ...] = ()
    dropped: int = 0
    counts_warnings: bool = False
    seconds: float = 0.0
    peak_bytes: int = 0

    @property
    def label(self) -> str:
        """Such as ``mypy-strict``."""
        return f"{self.checker}-{self.level}"

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that fail a run at this level."""
        failing = {Severity.ERROR, Severity.WARNING} if self.counts_warnings else {Severity.ERROR}
        return tuple(each for each in self.diagnostics if each.severity in failing)

    @property
    def error_lines(self) -> frozenset[tuple[Path, int]]:
        """The lines that have an error."""
        return frozenset((each.path, each.line) for each in self.errors)


def check(checker: Checker, level: Level, request: Request) -> Run:
    """Run one checker at one level. Whatever goes wrong with the checker is in the result.

    Raises:
        OSError: the request's folder, or one for temporary files, cannot be used.
    """
    return check_all([(checker, level)], request, jobs=1)[0]


def check_all(
    pairs: Iterable[tuple[Checker, Level]],
    request: Request,
    jobs: int = 2,
    finished: Callable[[Run], None] | None = None,
) -> list[Run]:
    """Run several, at most ``jobs`` at a time, the longest first. Their order is kept in the result.

    Args:
        pairs: checkers, each with one of its levels.
        request: what to check.
        jobs: processes at a time.
        finished: told about each run that came to an end of its own, in some thread.

    Raises:
        OSError: the request's folder, or one for temporary files, cannot be used.
        ValueError: ``jobs`` is below 1.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; at least one process must run")
    wanted = list(pairs)
    stop = Event()
    order = sorted(range(len(wanted)), key=lambda index: -wanted[index][0].weight)
    with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="checker") as pool:
        try:
            # All before the first run, which may then wait for its own without keeping another from starting.
            found = {
                checker: pool.submit(_find, checker, request, stop)
                for checker in dict.fromkeys(wanted[index][0] for index in order)
            }
            futures = {index: pool.submit(_run, *wanted[index], request, found, stop, finished) for index in order}
            return [futures[index].result() for index in range(len(wanted))]
        except BaseException:
            # Ctrl-C, most of all: the threads are waiting for processes, which have to go before this can end.
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


@dataclass(frozen=True)
class _Found:
    """``hanging``: what came of asking for the version, where that took too long."""

    executable: Path
    version: str | None
    hanging: Stopped | None = None


def _find(checker: Checker, request: Request, stop: Event) -> _Found | NotFoundError:
    try:
        executable = checker.locate()
    except NotFoundError as error:
        return error
    limit = min(request.time_limit, VERSION_TIME_LIMIT)
    done = execute(Command((str(executable), "--version")), request.root, limit, stop)
    if isinstance(done, Stopped) and done.timed_out:
        return _Found(executable, None, done)
    if isinstance(done, Stopped) or done.output.exit_code != 0:
        # Whatever is wrong here will be wrong again, and be reported, when files are to be checked.
        return _Found(executable, None)
    return _Found(executable, _shown(checker.version_of(done.output.stdout)))


def _shown(version: str) -> str | None:
    """What of a version can be shown anywhere; ``None``: nothing."""
    line = version.strip().partition("\n")[0]
    return "".join(char for char in line if char.isprintable())[:MAX_VERSION_LENGTH].strip() or None


def _run(
    checker: Checker,
    level: Level,
    request: Request,
    found: Mapping[Checker, Future[_Found | NotFoundError]],
    stop: Event,
    finished: Callable[[Run], None] | None,
) -> Run:
    program = found[checker].result()
    run = Run(checker.name, level.name, None, Status.MISSING, None, counts_warnings=level.counts_warnings)
    if isinstance(program, OverrideError):
        run = replace(run, reason=str(program))
    elif isinstance(program, NotFoundError):
        run = replace(run, reason=f"{program}; to install it: {checker.install_command}")
    elif program.hanging is not None:
        # It would hang again, and cost its time limit again.
        why = f"{program.hanging.reason}, when it was asked for its version"
        reason = _with_stderr(why, program.hanging.stderr)
        run = replace(run, status=Status.TIMED_OUT, reason=reason, seconds=program.hanging.seconds)
    else:
        run = _checked(replace(run, version=program.version), checker, level, request, program.executable, stop)
    if finished is not None and not stop.is_set():
        finished(run)
    return run


def _checked(run: Run, checker: Checker, level: Level, request: Request, executable: Path, stop: Event) -> Run:
    with TemporaryDirectory(prefix="genericbuilders-") as scratch:
        command = checker.command(executable, level, request, Path(scratch))
        done = execute(command, request.root, request.time_limit, stop)
    if isinstance(done, Stopped):
        status = Status.TIMED_OUT if done.timed_out else Status.CRASHED
        return replace(run, status=status, reason=_with_stderr(done.reason, done.stderr), seconds=done.seconds)
    run = replace(run, seconds=done.seconds, peak_bytes=done.peak_bytes)
    output = done.output
    try:
        reported = checker.parse(output, request)
        gave_up = checker.incomplete(output, reported)
        if gave_up is None:
            _check_exit(checker, output, reported)
    except OutputError as error:
        why = f"{_ending(output)}; {error}{_patterns(checker, request)}"
        return replace(run, status=Status.CRASHED, reason=_with_stderr(why, output.stderr))
    asked = _asked_for(reported, request)
    return replace(
        run,
        status=Status.OK if gave_up is None else Status.BLOCKED,
        reason=gave_up,
        diagnostics=asked,
        dropped=len(reported) - len(asked),
    )


def _check_exit(checker: Checker, output: Output, reported: Sequence[Diagnostic]) -> None:
    """What the exit code says must fit what was read, or something was not read."""
    if output.exit_code not in checker.exit_codes:
        raise OutputError(f"that is none of {', '.join(map(str, sorted(checker.exit_codes)))}")
    if output.exit_code and not reported:
        raise OutputError("it reported nothing that could be read")
    if not output.exit_code and any(each.severity is Severity.ERROR for each in reported):
        raise OutputError("it reported errors all the same")


def _asked_for(reported: Iterable[Diagnostic], request: Request) -> tuple[Diagnostic, ...]:
    """The reports on the request's files, under the names that the request has for them."""
    names = {os.path.realpath(file): (index, file) for index, file in reversed([*enumerate(request.files)])}
    asked: list[tuple[int, Diagnostic]] = []
    for each in reported:
        known = names.get(os.path.realpath(request.root / each.path))
        if known is not None:
            asked.append((known[0], replace(each, path=known[1])))
    asked.sort(key=lambda pair: (pair[0], pair[1].line, pair[1].column))
    return tuple(each for _, each in asked)


def _patterns(checker: Checker, request: Request) -> str:
    """The likely cause of a breakdown of one that reads names as patterns, where a name looks like one."""
    odd = [file for file in map(str, request.files) if set(file) & PATTERN] if checker.takes_patterns else []
    if not odd:
        return ""
    more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
    return f"; it reads names as patterns, and may not find {odd[0]}{more}: rename it, or leave it out"


def _ending(output: Output) -> str:
    code = output.exit_code
    return f"it ended with exit code {code}" if code >= 0 else f"it was ended by signal {-code}"


def _with_stderr(reason: str, stderr: str) -> str:
    lines = [line.rstrip() for line in stderr.splitlines() if line.strip()]
    return "\n".join([reason, *lines[-STDERR_LINES:]])
