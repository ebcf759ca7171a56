"""``genericbuilders migrate``: rewrites existing builders, or says what would be rewritten."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from genericbuilders.cli.errors import ExitCode, UserError, discard, reported, tell
from genericbuilders.cli.interrupt import Interrupt
from genericbuilders.cli.migrate_output import Form, Mode, Report, printable, render, write_stdout
from genericbuilders.migration.files import Failure, Found, PathError, RefusedError, Replacer, find
from genericbuilders.migration.result import Target
from genericbuilders.migration.run import Engine, Run, Stage, run
from genericbuilders.migration.run import Progress as Told

if TYPE_CHECKING:
    from genericbuilders.migration.project import Project

__all__ = ["find_engine", "migrate"]

STOPPED = "stopped by Ctrl-C; nothing was written"
REDRAW_SECONDS = 0.1
ENDED_BY_SIGNAL = 128


def migrate(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Python files, and folders of them.")],
    check: Annotated[
        bool, typer.Option("--check", help="Print what would change, a line each; end with 1 if there is any.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print what would change as unified diffs.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Rewrite the files.")] = False,
    target: Annotated[
        Target,
        typer.Option(
            help="generic: this library's base with two parameters; widened: vLLM's own base and an annotation."
        ),
    ] = Target.GENERIC,
    form: Annotated[Form, typer.Option("--format", help="The report's form.")] = Form.TABLE,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the report to this file instead of standard output.")
    ] = None,
) -> None:
    """Migrate metadata builders, or see what that would change: without a mode, nothing is written.

    Ends with 0 when all is well, with 1 when --check found something or a file failed, with 2 on bad input.
    """
    replacer = Replacer()

    def last_words() -> None:
        # In the second thread: nothing here may wait for the first one.
        replacer.abandon()
        os.write(2, b"stopped by Ctrl-C; every file is whole\n")

    with reported(), Interrupt(last_words) as interrupt:
        began = time.monotonic()
        mode = _mode(check=check, diff=diff, write=write)
        engine = find_engine()
        folder = _current_folder()
        found = _find(paths)
        destination = _destination(output, found)
        out = _output() if destination is None or mode in (Mode.CHECK, Mode.DIFF) else None
        try:
            with _watched() as told:
                done = run(engine, found, target, told)
            interrupt.check()
        except KeyboardInterrupt:
            tell(STOPPED)
            raise
        written, refused = _write_all(done, replacer, interrupt) if mode is Mode.WRITE else ((), ())
        failures = tuple(sorted((*done.failures, *refused), key=lambda failure: failure.path))
        report = Report(done, mode, target, folder, written, failures, time.monotonic() - began)
        for failure in failures:
            tell(f"{printable(report.short(failure.path))}: {printable(failure.reason)}", "skipped", "yellow")
        if destination is not None:
            with interrupt.deferred():
                _save(render(report, form), destination, output or "", replacer, report)
        if out is not None:
            _show(out, report, None if destination is not None else form)
        # Where no table ends with it.
        if destination is not None or form is Form.JSON or mode in (Mode.CHECK, Mode.DIFF):
            tell(report.verdict)
        if failures or (mode is Mode.CHECK and done.changed):
            raise typer.Exit(ExitCode.FAILED)


def find_engine() -> Engine[Project]:
    """What rewrites text.

    Raises:
        UserError: LibCST is not installed.
    """
    try:
        from genericbuilders.migration.engine import migrate as rewrite
        from genericbuilders.migration.project import Project
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "libcst":
            raise
        raise UserError(
            "migrate needs libcst, which is not installed; run: pip install 'genericbuilders[migrate]'"
        ) from None
    return Engine(Project.read, rewrite)


def _mode(*, check: bool, diff: bool, write: bool) -> Mode:
    given = [mode for mode, wanted in ((Mode.CHECK, check), (Mode.DIFF, diff), (Mode.WRITE, write)) if wanted]
    if len(given) > 1:
        names = " and ".join(f"--{mode}" for mode in given)
        raise UserError(f"{names} exclude each other; give one of them, or none for a report only")
    return given[0] if given else Mode.REPORT


def _find(paths: list[str]) -> Found:
    if "" in paths:
        raise UserError("'' is no path; the current folder is .")
    try:
        return find([Path(path) for path in paths])
    except PathError as error:
        raise UserError(str(error)) from None


def _destination(output: str | None, found: Found) -> Path | None:
    """Where the report goes; what can be known to go wrong there does so before any file is rewritten."""
    if output is None:
        return None
    path = Path(os.path.abspath(output or "."))
    if path.is_dir():
        raise UserError(f"--output {output or repr(output)}: it is a folder; name a file")
    if not path.parent.is_dir():
        raise UserError(f"--output {output}: there is no folder {path.parent}; create it")
    if os.path.realpath(path) in {os.path.realpath(file) for file in found.files}:
        raise UserError(f"--output {output}: it is one of the files to migrate; name another one")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"--output {output}: no permission to write it")
    return path


def _write_all(done: Run, replacer: Replacer, interrupt: Interrupt) -> tuple[tuple[Path, ...], tuple[Failure, ...]]:
    written: list[Path] = []
    refused: list[Failure] = []
    try:
        with _terminable():
            for result in done.changed:
                with interrupt.deferred():
                    try:
                        replacer.replace(done.sources[result.path], result.after)
                    except RefusedError as error:
                        refused.append(Failure(result.path, str(error)))
                    else:
                        written.append(result.path)
    except KeyboardInterrupt:
        tell(f"stopped by Ctrl-C; {len(written)} of {len(done.changed)} files were rewritten, each of them whole")
        raise
    return tuple(written), tuple(refused)


@contextmanager
def _terminable() -> Generator[None, None, None]:
    """Whoever ends the process politely has it clean up: no temporary file stays."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(ENDED_BY_SIGNAL + signum)

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    try:
        before = {signal.Signals[name]: signal.signal(signal.Signals[name], stop) for name in names}
    except ValueError:
        # Only the main thread may do so.
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _watched() -> Generator[Told, None, None]:
    """A progress bar on stderr, where that is a terminal."""
    shown = sys.stderr is not None and sys.stderr.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # It must not have a thread: processes are forked while it is shown.
    bar = Progress(*columns, console=Console(stderr=True), disable=not shown, transient=True, auto_refresh=False)
    drawn = 0.0
    with bar:
        task = bar.add_task("", total=None)

        def told(stage: Stage, done: int, total: int) -> None:
            nonlocal drawn
            bar.update(task, description=stage.value, completed=done, total=total)
            if done in (0, total) or time.monotonic() - drawn > REDRAW_SECONDS:
                bar.refresh()
                drawn = time.monotonic()

        yield told


def _save(data: bytes, path: Path, named: str, replacer: Replacer, report: Report) -> None:
    try:
        replacer.write(path, data)
    except OSError as error:
        raise UserError(f"--output {named}: {error.strerror or error}{_after(report)}") from None


def _show(out: TextIO, report: Report, form: Form | None) -> None:
    try:
        write_stdout(out, report, form)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard(out)
        raise UserError(f"the result cannot be written: {error.strerror or error}{_after(report)}") from None


def _after(report: Report) -> str:
    if report.mode is not Mode.WRITE:
        return ""
    return f"; {'1 file was' if len(report.written) == 1 else f'{len(report.written)} files were'} rewritten before"


def _output() -> TextIO:
    # Python has none where the shell closed it.
    if sys.stdout is None:
        raise UserError("the standard output is closed; there is nowhere to write the result")
    return sys.stdout


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise UserError(f"the current folder: {error.strerror or error}; go to one that is there") from None
