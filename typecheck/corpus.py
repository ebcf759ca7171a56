"""The corpus as it lies on disk: designs, cases with their marks, variants. What is malformed is refused by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final

from typecheck import toml

__all__ = [
    "Case",
    "Corpus",
    "CorpusError",
    "Design",
    "Family",
    "Fault",
    "Outcome",
    "Raises",
    "Returns",
    "Shows",
    "Variant",
    "read_corpus",
]

TABLE: Final = "family.toml"
_MARK = re.compile(r"# E(\??)$")
_OUTCOME = re.compile(r"^At run time:(.*)", re.MULTILINE | re.DOTALL)


class CorpusError(ValueError):
    """Files of the corpus are not what they must be; each line of the message is one of them."""


class Design(StrEnum):
    """A way to type the API, in the order in which they came up."""

    ASSERTING = "asserting"
    WIDENED = "widened"
    GENERIC = "generic"
    COVARIANT = "covariant"


@dataclass(frozen=True)
class Raises:
    """``run()`` raises an error of that class name, with that text in its message."""

    error: str
    text: str


@dataclass(frozen=True)
class Returns:
    """``run()`` returns a value with that ``repr``, where another would be right."""

    wrong: str
    right: str


@dataclass(frozen=True)
class Shows:
    """``run()`` returns; the fault shows elsewhere or later, as ``why`` says."""

    why: str


Outcome = Raises | Returns | Shows


@dataclass(frozen=True)
class Case:
    """A mistake in one design.

    Attributes:
        path: the file.
        mistake: what its author did wrong.
        outcome: what running it does.
        line: where it was done.
        marks: that line, and those beside it on which a report counts as well.
    """

    path: Path
    mistake: str
    outcome: Outcome
    line: int
    marks: frozenset[int]


@dataclass(frozen=True)
class Fault:
    """A mistake, whatever the design.

    Attributes:
        family: the folder of its family.
        name: its own folder.
        expressible: whether a type could tell it from right code.
        reason: why, or why not.
        cases: by design.
        absent: why it cannot be made in the designs that have no case.
    """

    family: str
    name: str
    expressible: bool
    reason: str
    cases: Mapping[Design, Case]
    absent: Mapping[Design, str]

    @property
    def key(self) -> str:
        """Unique in the corpus: ``family/name``."""
        return f"{self.family}/{self.name}"

    @property
    def mistake(self) -> str:
        """What its author did wrong, in the words of the last design that has it."""
        return [case.mistake for case in self.cases.values()][-1]


@dataclass(frozen=True)
class Family:
    """Faults of one kind."""

    name: str
    title: str
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Variant:
    """A right program that looks like a mistake.

    Attributes:
        family: the folder of its family.
        name: its own folder.
        design: the one that it is written for.
        path: the file.
        about: what it does.
        unchanged: where it is code of the one-parameter base that its design asks to change: into what; else empty.
    """

    family: str
    name: str
    design: Design
    path: Path
    about: str
    unchanged: str = ""

    @property
    def key(self) -> str:
        """Unique in the corpus, for all designs of it: ``family/name``."""
        return f"{self.family}/{self.name}"


@dataclass(frozen=True)
class Corpus:
    """Everything that is checked. Paths are absolute."""

    folder: Path
    families: tuple[Family, ...]
    variants: tuple[Variant, ...]
    programs: Mapping[Design, tuple[Path, ...]]

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All families' faults."""
        return tuple(fault for family in self.families for fault in family.faults)

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that a checker is given."""
        cases = (case.path for fault in self.faults for case in fault.cases.values())
        programs = (path for paths in self.programs.values() for path in paths)
        return (*cases, *(variant.path for variant in self.variants), *dict.fromkeys(programs))

    def short(self, path: Path) -> str:
        """A path of the corpus as results write it."""
        return path.relative_to(self.folder).as_posix()


def read_corpus(folder: Path) -> Corpus:
    """Read ``folder``, the study's.

    Raises:
        CorpusError: something is malformed, missing or superfluous; all of it is listed.
    """
    folder = folder.absolute()
    problems: list[str] = []
    for each in ("cases", "variants"):
        _refuse_strays(folder / each, "only folders of families may be here", (), problems, nested=True)
    families = tuple(_family(path, problems) for path in _folders(folder / "cases"))
    variants = tuple(_variants(folder / "variants", problems))
    shared = sorted((folder / "designs" / "shared").glob("*.py"))
    programs = {design: tuple(sorted((folder / "designs" / design).glob("*.py")) + shared) for design in Design}
    problems += [f"designs/{design} has no program" for design in Design if len(programs[design]) == len(shared)]
    if not families:
        problems.append(f"{folder / 'cases'} has no family")
    if problems:
        raise CorpusError("\n".join(problems))
    return Corpus(folder, families, variants, programs)


def _family(folder: Path, problems: list[str]) -> Family:
    where = folder / TABLE
    about = _told(where, problems)
    places = _folders(folder)
    _refuse_unknown(where, about, "cases", places, problems)
    _refuse_strays(folder, f"only {TABLE} and folders of cases may be here", (TABLE,), problems, nested=True)
    faults = tuple(_fault(place, about, problems) for place in places)
    return Family(folder.name, _text(about, "title", where, problems), faults)


def _fault(folder: Path, about: toml.Table, problems: list[str]) -> Fault:
    where = folder.parent / TABLE
    told: toml.Table = {}
    absent: dict[Design, str] = {}
    with _Noting(problems, where):
        told = toml.table(toml.table(about, "cases"), folder.name)
        absences = toml.table(told, "absent")
        absent = {Design(name): toml.text(absences, name) for name in absences}
    if not told:
        problems.append(f"{where}: cases.{folder.name} is missing")
    _refuse_keys(where, told, ("expressible", "reason", "absent"), f"cases.{folder.name}.", problems)
    expressible = told.get("expressible")
    if not isinstance(expressible, bool):
        problems.append(f"{where}: cases.{folder.name}.expressible must be true or false")
    cases = {design: _case(path, problems) for design, path in _files(folder, absent, problems)}
    reason = _text(told, "reason", where, problems)
    return Fault(folder.parent.name, folder.name, expressible is True, reason, cases, absent)


def _files(folder: Path, absent: Container[Design], problems: list[str]) -> Iterator[tuple[Design, Path]]:
    """The file of each design; those that are left out must not be there, all others must."""
    for design in Design:
        path = folder / f"{design}.py"
        if path.is_file() == (design in absent):
            problems.append(f"{path}: is there although `absent` has it" if design in absent else f"{path}: missing")
        elif path.is_file():
            yield design, path
    _refuse_strays(folder, "no design of that name", [f"{design}.py" for design in Design], problems, nested=False)


def _case(path: Path, problems: list[str]) -> Case:
    source = _source(path, problems)
    if source is None:
        return Case(path, "", Shows(""), 1, frozenset())
    mistake, told = _docstring(path, source, problems)
    outcome = _outcome(told)
    if outcome is None:
        problems.append(
            f"{path}: the docstring needs 'At run time: Error: text', 'wrong: x; right: y' or 'nothing: why'"
        )
        outcome = Shows("")
    marks: set[int] = set()
    lines: list[int] = []
    for number, line in enumerate(source.split("\n"), 1):
        found = _MARK.search(line)
        if found:
            marks.add(number)
            lines += [] if found[1] else [number]
    if len(lines) != 1:
        problems.append(f"{path}: {len(lines)} lines end in '# E'; one must")
    elif max(marks) - min(marks) + 1 != len(marks):
        problems.append(f"{path}: the lines {sorted(marks)} are marked with a gap; '# E?' stands beside '# E'")
    return Case(path, mistake, outcome, lines[0] if lines else 1, frozenset(marks))


def _outcome(told: str | None) -> Outcome | None:
    if not told:
        return None
    kind, _, rest = (part.strip() for part in told.partition(":"))
    if kind == "nothing":
        return Shows(rest) if rest else None
    if kind == "wrong":
        wrong, found, right = rest.partition("; right: ")
        return Returns(wrong, right) if found else None
    return Raises(kind, rest) if kind.isidentifier() else None


def _variants(folder: Path, problems: list[str]) -> Iterator[Variant]:
    for family in _folders(folder):
        told = _told(family / TABLE, problems)
        places = _folders(family)
        _refuse_unknown(family / TABLE, told, "variants", places, problems)
        _refuse_strays(family, f"only {TABLE} and folders of variants may be here", (TABLE,), problems, nested=True)
        for place in places:
            reasons = _reasons(family / TABLE, told, place.name, problems)
            for design, path in _files(place, reasons["absent"], problems):
                source = _source(path, problems)
                if source is None:
                    continue
                if any(_MARK.search(line) for line in source.split("\n")):
                    problems.append(f"{path}: a variant is right and has no marks")
                about = _docstring(path, source, problems)[0]
                yield Variant(family.name, place.name, design, path, about, reasons["unchanged"].get(design, ""))


def _reasons(where: Path, told: toml.Table, name: str, problems: list[str]) -> dict[str, dict[Design, str]]:
    """What a variant's entry says of designs, by key."""
    found: dict[str, dict[Design, str]] = {"absent": {}, "unchanged": {}}
    with _Noting(problems, where):
        row = toml.table(toml.table(told, "variants"), name)
        _refuse_keys(where, row, tuple(found), f"variants.{name}.", problems)
        for key, reasons in found.items():
            given = toml.table(row, key)
            reasons.update({Design(design): toml.text(given, design) for design in given})
    return found


def _refuse_unknown(where: Path, told: toml.Table, key: str, places: Sequence[Path], problems: list[str]) -> None:
    names = {path.name for path in places}
    _refuse_keys(where, told, ("title", key), "", problems)
    with _Noting(problems, where):
        problems += [f"{where}: there is no folder for {key}.{n}" for n in toml.table(told, key) if n not in names]


def _refuse_keys(where: Path, told: toml.Table, known: Sequence[str], front: str, problems: list[str]) -> None:
    problems += [f"{where}: {front}{key} is no key; there are {', '.join(known)}" for key in told if key not in known]


def _refuse_strays(folder: Path, rule: str, files: Container[str], problems: list[str], *, nested: bool) -> None:
    """What is not read would be no part of the corpus without a word. ``nested``: folders may be there."""
    for path in sorted(folder.glob("*")):
        if not (_foreign(path) or path.name in files or (nested and path.is_dir())):
            problems.append(f"{path}: {rule}")


def _source(path: Path, problems: list[str]) -> str | None:
    """The text of a file; ``None``, and a problem, where it is no Python."""
    try:
        source = path.read_text(encoding="utf-8")
        ast.parse(source, str(path))
    except SyntaxError as error:
        where = path if error.lineno is None else f"{path}:{error.lineno}"
        problems.append(f"{where}: {error.msg}")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problems.append(f"{path}:{line}: byte 0x{error.object[error.start]:02x} is not UTF-8")
    except (OSError, ValueError) as error:
        problems.append(f"{path}: {error}")
    else:
        return source
    return None


def _docstring(path: Path, source: str, problems: list[str]) -> tuple[str, str | None]:
    """The first paragraph, and what follows ``At run time:``; both on one line."""
    text = ast.get_docstring(ast.parse(source, str(path))) or ""
    about = " ".join(text.partition("\n\n")[0].split())
    if not about:
        problems.append(f"{path}: the docstring is missing")
    found = _OUTCOME.search(text)
    return about, " ".join(found[1].split()) if found else None


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_dir() and not _foreign(path))


def _foreign(path: Path) -> bool:
    """Whether tools leave such a thing behind."""
    return path.name.startswith(".") or path.name == "__pycache__"


def _told(path: Path, problems: list[str]) -> toml.Table:
    try:
        return toml.load(path)
    except (OSError, ValueError) as error:
        problems.append(f"{path}: {error}")
    return {}


def _text(source: toml.Table, key: str, where: Path, problems: list[str]) -> str:
    with _Noting(problems, where):
        return toml.text(source, key)
    return ""


class _Noting:
    """Notes a `ValueError` as a problem and goes on."""

    def __init__(self, problems: list[str], where: Path) -> None:
        self._problems = problems
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if isinstance(error, ValueError):
            self._problems.append(f"{self._where}: {error}")
        return isinstance(error, ValueError)
