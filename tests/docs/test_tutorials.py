"""The code in the documentation runs, and both checkers infer what it says that they infer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
README = ROOT / "README.md"
ENGINE_LOOP = ROOT / "docs" / "tutorials" / "write-an-engine-loop.md"
CHECKERS = {
    "mypy": ["mypy", "--strict", "--config-file", "pyproject.toml", "--no-pretty", "--no-error-summary"],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}
PROBLEM = re.compile(r"\s*(?P<path>/[^:]+\.py):(?P<line>\d+):[\d: -]*(error|warning): (?P<message>.*)")


class Problem(NamedTuple):
    """What a checker says of one line of a page."""

    page: str
    line: int
    message: str


def blocks(page: Path) -> Iterator[tuple[int, list[str]]]:
    """The page's Python blocks: the number of lines above each one's code, and its code."""
    start: int | None = None
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if start is None and line == "```python":
            start = number + 1
        elif start is not None and line == "```":
            yield start, lines[start:number]
            start = None


def module(page: Path, chosen: slice = slice(None)) -> str:
    """The page's Python blocks as one module, in which each line has the number that it has on the page."""
    lines: list[str] = []
    for start, code in list(blocks(page))[chosen]:
        lines += [""] * (start - len(lines)) + code
    return "\n".join(lines) + "\n"


def module_name(page: Path) -> str:
    return page.stem.replace("-", "_").lower()


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each page's module, and a spoiled one to see that checkers do look."""
    texts = {module_name(page): module(page) for page in TUTORIALS}
    # The first block of the README is an extract; the second one needs a model's folder to run.
    texts[module_name(README)] = module(README, slice(1, 2))
    texts["spoiled"] = spoil(module(ENGINE_LOOP))
    folder = tmp_path_factory.mktemp("pages")
    paths = {name: folder / f"{name}.py" for name in texts}
    for name, path in paths.items():
        path.write_text(texts[name], encoding="utf-8")
    return paths


def spoil(text: str) -> str:
    """Change what one line says that the checkers infer."""
    right = "assert_type(metadata, FlashAttentionMetadata)"
    assert right in text
    return text.replace(right, "assert_type(metadata, FullAttentionSpec)")


@pytest.fixture(scope="module", params=CHECKERS)
def problems(request: pytest.FixtureRequest, modules: dict[str, Path]) -> Sequence[Problem]:
    """What one checker, with this project's settings, says of all pages."""
    command = [sys.executable, "-m", *CHECKERS[str(request.param)], *map(str, modules.values())]
    result = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    # Both find a fault in the spoiled module; anything else is a failure of the checker itself.
    assert result.returncode == 1, result.stdout + result.stderr
    matches = filter(None, map(PROBLEM.fullmatch, result.stdout.splitlines()))
    return [Problem(Path(match["path"]).stem, int(match["line"]), match["message"]) for match in matches]


def environment() -> dict[str, str]:
    """This process's, with the sources found first."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}


@pytest.mark.parametrize("page", [*TUTORIALS, README], ids=module_name)
def test_the_checkers_find_no_fault(page: Path, problems: Sequence[Problem]) -> None:
    assert [problem for problem in problems if problem.page == module_name(page)] == []


def test_the_checkers_find_a_wrong_line(modules: dict[str, Path], problems: Sequence[Problem]) -> None:
    lines = modules["spoiled"].read_text(encoding="utf-8").splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if "assert_type(metadata, FullAttentionSpec)" in line]
    assert [problem.line for problem in problems if problem.page == "spoiled"] == wrong


@pytest.mark.parametrize("page", TUTORIALS, ids=module_name)
def test_the_code_runs(page: Path, modules: dict[str, Path], tmp_path: Path) -> None:
    command = [sys.executable, str(modules[module_name(page)])]
    result = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
