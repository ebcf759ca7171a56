"""Results on disk: one readable file for each checker and level, one line for each fault."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from typecheck import toml
from typecheck.corpus import Design
from typecheck.verdict import Finding, Result, Stray

__all__ = ["ResultsError", "differences", "read_result", "read_results", "write_result", "written"]

_MISSED = "missed"
_CAUGHT = "caught: "


class ResultsError(ValueError):
    """A file of results cannot be read; the message says which and what to do."""


def written(result: Result) -> str:
    """The text of a result's file."""
    lines = [
        "# Written by `python -m typecheck run`; do not edit.",
        f"checker = {_quoted(result.checker)}",
        f"level = {_quoted(result.level)}",
        f"version = {_quoted(result.version)}",
        "",
        "[faults]",
        *(f"{_quoted(key)} = {_row(result.findings[key])}" for key in sorted(result.findings)),
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
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.label}.toml"
    partial = path.with_suffix(".partial")
    partial.write_text(written(result), encoding="utf-8")
    os.replace(partial, path)
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
        ResultsError: it is missing or malformed.
    """
    try:
        told = toml.load(path)
        faults = toml.table(told, "faults")
        return Result(
            toml.text(told, "checker"),
            toml.text(told, "level"),
            toml.text(told, "version"),
            {key: _findings(toml.table(faults, key)) for key in faults},
            _strays(toml.table(told, "strays")),
            _strays(toml.table(told, "false_alarms")),
        )
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: {error}; `python -m typecheck run` writes it") from None


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


def _row(findings: Mapping[Design, Finding]) -> str:
    cells = (f"{design} = {_quoted(_verdict(findings[design]))}" for design in Design if design in findings)
    return f"{{ {', '.join(cells)} }}"


def _verdict(finding: Finding) -> str:
    return _CAUGHT + ", ".join(finding.codes) if finding.caught else _MISSED


def _grouped(strays: Iterable[Stray]) -> dict[str, str]:
    codes: dict[str, list[str]] = {}
    for stray in strays:
        codes.setdefault(stray.place, []).append(stray.code)
    return {place: ", ".join(found) for place, found in codes.items()}


def _places(strays: Iterable[Stray]) -> list[str]:
    return [f"{_quoted(place)} = {_quoted(codes)}" for place, codes in _grouped(strays).items()]


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


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
