"""A stand-in for the engine: ``OldBuilder`` becomes ``NewBuilder``. Words in a file have it break down, or wait."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from genericbuilders.migration.result import ClassReport, FileResult, Finding, Outcome, Target
from genericbuilders.migration.run import Engine

__all__ = ["ENGINE", "MIGRATED", "SOURCE", "FakeProject", "rewrite"]

OLD = "OldBuilder"
SOURCE = "class Mine(OldBuilder):\n    pass\n"
MIGRATED = SOURCE.replace(OLD, "NewBuilder")


@dataclass(frozen=True)
class FakeProject:
    texts: Mapping[Path, str]
    unparsed: Mapping[Path, str]

    @classmethod
    def read(cls, files: Mapping[Path, str]) -> FakeProject:
        unparsed: dict[Path, str] = {}
        for path, text in files.items():
            if "UNREADABLE" in text:
                raise KeyError("UNREADABLE")
            try:
                ast.parse(text)
            except SyntaxError as error:
                unparsed[path] = f"{error.msg}, line {error.lineno}"
        return cls(dict(files), unparsed)

    def relevant(self) -> Sequence[Path]:
        return [path for path, text in self.texts.items() if OLD in text]


def rewrite(project: FakeProject, path: Path, target: Target) -> FileResult:
    before = project.texts[path]
    if "CRASH" in before:
        raise LookupError("no such thing")
    if "DIE" in before:
        os._exit(3)
    if "SLOW" in before:
        time.sleep(60)
    if "SPOILT" in before:
        return FileResult(path, before, "class :\n", (), ())
    if "NOTHING" in before:
        return FileResult(path, before, before, (), ())
    if "REFUSED" in before:
        left = Finding(1, 7, "spec-unknown", "nothing says which spec it takes; add a marker", changes=False)
        return FileResult(path, before, before, (ClassReport("Mine", 1, Outcome.REFUSED, None, None, (left,)),), ())
    lines = [number for number, line in enumerate(before.split("\n"), 1) if OLD in line]
    findings = tuple(Finding(line, 12, "spec-argument", f"NewBuilder for {target}", True) for line in lines)
    findings += (Finding(2, 1, "cast", "a cast that is still needed", False),) * ("LEFT" in before)
    spec = ClassReport("Mine", lines[0], Outcome.MIGRATED, "MambaSpec", "hint of kv_cache_spec (line 9)", findings)
    name = "N\N{LATIN SMALL LETTER E WITH ACUTE}wBuilder" if "ACCENT" in before else "NewBuilder"
    name = "\N{GREEK SMALL LETTER ALPHA}Builder" if "GREEK" in before else name
    return FileResult(path, before, before.replace(OLD, name), (spec,), ())


ENGINE: Engine[FakeProject] = Engine(FakeProject.read, rewrite)
