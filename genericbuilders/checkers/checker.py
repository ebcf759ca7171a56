"""What a type checker has to be to take part: found, asked, and understood."""

from __future__ import annotations

import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from genericbuilders.checkers.diagnostic import Diagnostic

__all__ = ["Checker", "Command", "Level", "NotFoundError", "Output", "OutputError", "OverrideError", "Request"]


class OutputError(ValueError):
    """A checker wrote what cannot be read; the message says where."""


class NotFoundError(LookupError):
    """A checker is not installed; the message says where it was looked for."""


class OverrideError(NotFoundError):
    """The environment variable that says which executable to use names none; the message says both."""


@dataclass(frozen=True)
class Level:
    """One strictness of a checker.

    Attributes:
        name: unique among the checker's levels.
        arguments: what its command line gets for it.
        settings: keys and values for its generated configuration file, for checkers that have no option for it.
        counts_warnings: whether warnings fail a run at this level, as they do on the checker's own command line.
    """

    name: str
    arguments: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    counts_warnings: bool = False


@dataclass(frozen=True)
class Request:
    """What to check, and in which surroundings. All paths are absolute.

    Attributes:
        files: what is reported on. The files that they import are read, and not reported on.
        root: the working directory; packages are found from there.
        search_paths: more folders in which packages are found.
        python: the interpreter whose installed packages are seen.
        python_version: the language version that is assumed.
        stub_paths: folders with stub files.
        cache_dir: where a checker may keep what makes the next run faster; ``None``: in the user's cache folder.
        time_limit: seconds that one run may take.

    Raises:
        ValueError: no file; a path that is not absolute; a time limit that is not positive.
    """

    files: tuple[Path, ...]
    root: Path
    search_paths: tuple[Path, ...] = ()
    python: Path = field(default_factory=lambda: Path(sys.executable))
    python_version: str = "3.11"
    stub_paths: tuple[Path, ...] = ()
    cache_dir: Path | None = None
    time_limit: float = 60.0

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("there is no file to check; name at least one")
        for path in (*self.files, self.root, *self.search_paths, self.python, *self.stub_paths):
            if not path.is_absolute():
                raise ValueError(f"{path} is a relative path; make it absolute")
        if not self.time_limit > 0:
            raise ValueError(f"the time limit is {self.time_limit} s; it must be above 0")

    @property
    def import_paths(self) -> tuple[Path, ...]:
        """Where packages are found, first to last, installed ones left out; each folder once."""
        return tuple(dict.fromkeys((*self.stub_paths, self.root, *self.search_paths)))

    def cache(self) -> Path:
        """The folder for what makes the next run faster. It may not be there yet."""
        if self.cache_dir is not None:
            return self.cache_dir
        from platformdirs import user_cache_path

        return user_cache_path("genericbuilders") / "checkers"


@dataclass(frozen=True)
class Command:
    """A process to start.

    Attributes:
        arguments: the executable and what it gets.
        variables: environment variables that it needs, beside those that every checker gets.
    """

    arguments: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Output:
    """What a process wrote and how it ended; ``exit_code`` is negative where a signal ended it."""

    stdout: str
    stderr: str
    exit_code: int


class Checker(ABC):
    """One type checker. A subclass is stateless, and all that the library knows of the checker.

    Attributes:
        name: also the name of its executable.
        package: what ``pip install`` takes.
        tested: the version whose output the tests hold, and the study's results are from.
        levels: weakest first.
        exit_codes: those with which it ends a run of which every result is there.
        weight: seconds of a small run, roughly: long ones are started first.
        takes_patterns: whether it reads the names of files as patterns.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    tested: ClassVar[str]
    levels: ClassVar[tuple[Level, ...]]
    exit_codes: ClassVar[frozenset[int]] = frozenset({0, 1})
    weight: ClassVar[float] = 1.0
    takes_patterns: ClassVar[bool] = False

    @abstractmethod
    def command(self, executable: Path, level: Level, request: Request, scratch: Path) -> Command:
        """The one process that checks all of the request's files.

        Args:
            executable: from `locate`.
            level: one of `levels`.
            request: what to check.
            scratch: an empty folder, there for as long as the process; for configuration files.
        """

    @abstractmethod
    def parse(self, output: Output, request: Request) -> tuple[Diagnostic, ...]:
        """Everything that the checker reported, in its order.

        Raises:
            OutputError: something cannot be read; nothing is skipped.
        """

    def incomplete(self, output: Output, found: tuple[Diagnostic, ...]) -> str | None:
        """Why the checker gave up before it had seen every file; ``None``: it did not, or it crashed."""
        return None

    def version_of(self, text: str) -> str:
        """The version in the output of ``--version``: by default its first line, without the checker's name."""
        lines = text.strip().splitlines() or [""]
        return lines[0].removeprefix(self.name).strip()

    @property
    def install_command(self) -> str:
        """What installs the version that is tested."""
        return f"pip install {self.package}=={self.tested}"

    @property
    def variable(self) -> str:
        """The environment variable that names the executable to use, before any other."""
        return f"GENERICBUILDERS_{self.name.upper()}"

    def locate(self) -> Path:
        """The checker's executable: from `variable`, else beside the running interpreter, else on ``PATH``.

        Raises:
            NotFoundError: it is in none of them.
            OverrideError: `variable` is set, and names no program.
        """
        wanted = os.environ.get(self.variable)
        if wanted:
            found = shutil.which(wanted)
            if found is None:
                raise OverrideError(f"{self.variable} is {wanted!r}, and there is no such program")
            return Path(found).absolute()
        # Not resolved: in a virtual environment the interpreter is a link out of it.
        beside = str(Path(sys.executable).parent)
        found = shutil.which(self.name, path=beside) or shutil.which(self.name)
        if found is None:
            raise NotFoundError(f"{self.name} is neither in {beside} nor on PATH")
        return Path(found).absolute()

    def label(self, level: Level) -> str:
        """The name of a run, such as ``mypy-strict``."""
        return f"{self.name}-{level.name}"

    def level(self, name: str) -> Level:
        """The level of that name.

        Raises:
            LookupError: there is none.
        """
        for level in self.levels:
            if level.name == name:
                return level
        raise LookupError(f"{self.name} has no level {name!r}; it has {', '.join(each.name for each in self.levels)}")
