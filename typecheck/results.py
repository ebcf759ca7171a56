"""Results on disk: one readable file for each checker and level, one line for each fault."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from typecheck import toml
from typecheck.corpus import Corpus, Design
from typecheck.verdict import Finding, Result, Stray

__all__ = [
    "ResultsError",
    "differences",
    "read_result",
    "read_results",
    "unknown_files",
    "unlike",
    "write_result",
    "written",
]

KEYS: Final = frozenset({"checker", "level", "version", "faults", "strays", "false_alarms"})
FEW: Final = 3
_MISSED = "missed"
_CAUGHT = "caught: "


class ResultsError(ValueError):
    """A file of results cannot be read; the message says which and what to do."""


def written(result: Result) -> str:
    """The text of a result's file."""
    lines = [
        "# Written by `python -m typecheck run`; do not edit.",
        f"checker = {toml.quoted(result.checker)}",
        f"level = {toml.quoted(result.level)}",
        f"version = {toml.quoted(result.version)}",
        "",
        "[faults]",
        *(f"{toml.quoted(key)} = {_row(result.findings[key])}" for key in sorted(result.findings)),
        "",
        "# Errors in cases, but not where the mistake is.",
        "[strays]",
        *_places(result.strays),
        "",
        "# Errors in programs and variants, which are right.",
        "[false_alarms]",
        *_places(result.alarms),
    ]
    return "\n".join(lines) + "\n"


def write_result(folder: Path, result: Result) -> Path:
    """Write a result into ``folder``; a file that is there is replaced in one step."""
    path = folder / f"{result.label}.toml"
    toml.replace(path, written(result))
    return path


def read_results(folder: Path, labels: Sequence[str]) -> list[Result]:
    """The committed results of ``labels``, in that order.

    Raises:
        ResultsError: one is missing or malformed.
    """
    return [read_result(folder / f"{label}.toml") for label in labels]


def read_result(path: Path) -> Result:
    """One committed result.

    Raises:
        ResultsError: it is missing, malformed, or of another checker or level than its name says.
    """
    try:
        told = toml.load(path)
        if unknown := sorted(told.keys() - KEYS):
            raise ValueError(f"{', '.join(unknown)} is no key of a result")
        faults = toml.table(told, "faults")
        found = Result(
            toml.text(told, "checker"),
            toml.text(told, "level"),
            toml.text(told, "version"),
            {key: _findings(toml.table(faults, key)) for key in faults},
            _strays(toml.table(told, "strays")),
            _strays(toml.table(told, "false_alarms")),
        )
        if found.label != path.stem:
            raise ValueError(f"it says that it is of {found.label}")
        return found
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: {error}; `python -m typecheck run` writes it") from None


def unknown_files(folder: Path, known: Iterable[str]) -> list[str]:
    """The TOML files in a folder of results that nobody reads, one line each; ``known`` are names without ending."""
    names = set(known)
    return [
        f"{path.name}: there is no such checker and level"
        for path in sorted(folder.glob("*.toml"))
        if path.stem not in names
    ]


def unlike(corpus: Corpus, result: Result) -> str | None:
    """How a result's rows differ from the cases that there are; ``None``: they do not."""
    there = {f"{fault.key}/{design}" for fault in corpus.faults for design in fault.cases}
    judged = {f"{key}/{design}" for key, row in result.findings.items() for design in row}
    parts = ((there - judged, "has no"), (judged - there, "has a"))
    told = [f"{verb} verdict on {_some(keys)}" for keys, verb in parts if keys]
    return " and ".join(told) or None


def differences(committed: Result, measured: Result) -> list[str]:
    """What differs, one line each; none if the two are equal."""
    old, new = _flat(committed), _flat(measured)
    return [
        f"{measured.label}: {key}: {old.get(key, 'nothing')} -> {new.get(key, 'nothing')}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _flat(result: Result) -> dict[str, str]:
    found = {"version": result.version}
    for key, row in result.findings.items():
        found |= {f"{key} ({design})": _verdict(finding) for design, finding in row.items()}
    for kind, strays in (("stray", result.strays), ("false alarm", result.alarms)):
        found |= {f"{kind} at {place}": codes for place, codes in _grouped(strays).items()}
    return found


def _some(keys: Collection[str]) -> str:
    more = f" and {len(keys) - FEW} more" if len(keys) > FEW else ""
    return ", ".join(sorted(keys)[:FEW]) + more


def _row(findings: Mapping[Design, Finding]) -> str:
    cells = (f"{design} = {toml.quoted(_verdict(findings[design]))}" for design in Design if design in findings)
    return f"{{ {', '.join(cells)} }}"


def _verdict(finding: Finding) -> str:
    return _CAUGHT + ", ".join(finding.codes) if finding.caught else _MISSED


def _grouped(strays: Iterable[Stray]) -> dict[str, str]:
    codes: dict[str, list[str]] = {}
    for stray in strays:
        codes.setdefault(stray.place, []).append(stray.code)
    return {place: ", ".join(found) for place, found in codes.items()}


def _places(strays: Iterable[Stray]) -> list[str]:
    return [f"{toml.quoted(place)} = {toml.quoted(codes)}" for place, codes in _grouped(strays).items()]


def _findings(row: toml.Table) -> dict[Design, Finding]:
    return {Design(name): _finding(toml.text(row, name)) for name in row}


def _finding(text: str) -> Finding:
    if text == _MISSED:
        return Finding()
    if not text.startswith(_CAUGHT):
        raise ValueError(f"{text!r} is neither {_MISSED!r} nor begins with {_CAUGHT!r}")
    return Finding(tuple(text.removeprefix(_CAUGHT).split(", ")))


def _strays(places: toml.Table) -> tuple[Stray, ...]:
    return tuple(Stray(place, code) for place in places for code in toml.text(places, place).split(", "))
