"""``genericbuilders compare``: what each type checker, at each level, says about somebody's files."""

from __future__ import annotations

import errno
import itertools
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TextIO

import typer

from genericbuilders.checkers import Checker, Level, Request, Run, Status, check_all
from genericbuilders.cli.compare_choice import check_overrides, choose_levels, find_python, python_version
from genericbuilders.cli.compare_files import collect
from genericbuilders.cli.compare_imports import import_places
from genericbuilders.cli.compare_lines import compare_runs
from genericbuilders.cli.compare_output import Surroundings, write_json, write_text
from genericbuilders.cli.errors import ExitCode, UserError, discard, reported, tell
from genericbuilders.cli.interrupt import Interrupt
from genericbuilders.cli.progress import stages

__all__ = ["compare"]

STOPPED = "stopped by Ctrl-C; nothing was compared"


def compare(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Python files, and folders of them.")],
    checker: Annotated[
        list[str] | None, typer.Option(help="Run only this checker; may be given more than once.")
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option(help="Run only this level, such as strict or mypy-strict; may be given more than once."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(help="The interpreter whose packages are seen. Default: the active environment's, else this one."),
    ] = None,
    search_path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER", help="A folder with modules, beside the current one; may be given more than once."
        ),
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds that a checker may take at one level.")] = 60.0,
    jobs: Annotated[int, typer.Option(help="Checkers that run at a time.")] = 2,
    every_line: Annotated[
        bool, typer.Option("--all", help="Show the lines with errors on which all agree, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False,
) -> None:
    """Compare what type checkers say about your files, line by line.

    Ends with 0 when all agree, with 1 when they differ or one did not come to its end, with 2 on bad input.
    """
    with reported(), Interrupt(_last_words) as interrupt:
        try:
            out = _output()
            if not (time_limit > 0 and math.isfinite(time_limit)):
                raise UserError(f"--time-limit {time_limit:g}: it must be a number of seconds above 0")
            if jobs < 1:
                raise UserError(f"--jobs {jobs}: at least one checker must run")
            folder = _current_folder()
            pairs = choose_levels(checker or [], level or [])
            check_overrides(each for each, _ in pairs)
            found = collect([_named(path) for path in paths])
            named = tuple(_folder(path) for path in search_path or [])
            interpreter = find_python(python)
            places = import_places(found.files, folder, named)
            request = Request(
                files=tuple(source.path for source in found.files),
                root=places.root,
                search_paths=(*named, *places.bases),
                python=interpreter,
                python_version=python_version(interpreter),
                time_limit=time_limit,
            )
            surroundings = Surroundings(request, found.left_out, folder)
            for path, why in found.left_out:
                tell(f"{surroundings.short(path)}: {why}", "left out", "yellow")
            if places.root != folder:
                tell(f"the current folder is inside a package: modules are named from {places.root}")
            runs = _run(pairs, request, jobs)
            comparison = compare_runs(runs, {source.path: source.lines for source in found.files})
            interrupt.check()
        except KeyboardInterrupt:
            tell(STOPPED)
            raise
        try:
            if json:
                write_json(out, comparison, surroundings)
            else:
                write_text(out, comparison, surroundings, every_line)
            out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            discard(out)
            raise UserError(f"the result cannot be written: {error.strerror or error}") from None
        if not comparison.agreed:
            raise typer.Exit(ExitCode.FAILED)


def _run(pairs: Sequence[tuple[Checker, Level]], request: Request, jobs: int) -> list[Run]:
    """Run the checkers, and tell of each run's end.

    Raises:
        UserError: no checker is installed, or none can be started.
    """
    files = "1 file" if len(request.files) == 1 else f"{len(request.files)} files"
    with stages(f"checking {files} at {len(pairs)} levels") as progress:
        try:
            runs = check_all(pairs, request, jobs, _counted(len(pairs), progress))
        except OSError as error:
            raise _unstartable(error, files, request.root) from None
    missing = dict.fromkeys(run.reason for run in runs if run.status is Status.MISSING)
    if all(run.status is Status.MISSING for run in runs):
        raise UserError("no checker is installed: " + "; ".join(reason or "" for reason in missing))
    return runs


def _counted(total: int, progress: Callable[[str], None]) -> Callable[[Run], None]:
    # Not a length: runs end in several threads.
    numbers = itertools.count(1)

    def update(run: Run) -> None:
        result = f"lines with errors: {len(run.error_lines)}" if run.status is Status.OK else run.status.value
        progress(f"{next(numbers)}/{total} {run.label}: {result.replace('_', ' ')}; {run.seconds:.1f} s")

    return update


def _unstartable(error: OSError, files: str, folder: Path) -> UserError:
    why = error.strerror or str(error)
    if error.errno == errno.E2BIG:
        return UserError(f"checkers cannot be started on {files}: {why}; name fewer files, or smaller folders")
    if error.filename is None:
        return UserError(f"checkers cannot be started: {why}")
    where = os.fsdecode(error.filename)
    mend = "go to a folder that you may enter" if Path(where) == folder else "see that you may use it"
    return UserError(f"checkers cannot be started: {where}: {why}; {mend}")


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


def _named(path: str) -> Path:
    if not path:
        raise UserError("'' is no path; the current folder is .")
    return Path(path)


def _folder(path: str) -> Path:
    if not os.path.isdir(path):
        raise UserError(f"--search-path {path or repr(path)}: there is no such folder")
    return Path(os.path.abspath(path))


def _last_words() -> None:
    """For the second thread: nothing here may wait for the first one."""
    os.write(2, f"{STOPPED}\n".encode())
