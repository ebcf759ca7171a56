"""The pages in docs/ are what the committed results say."""

from __future__ import annotations

from pathlib import Path

from typecheck.commands.reporting import tell
from typecheck.study import FOLDER

PAGES = FOLDER.parent / "docs" / "study"


def test_the_pages_are_of_these_results(tmp_path: Path) -> None:
    html, markdown = tmp_path / "report.html", tmp_path / "index.md"

    assert tell(False, html, markdown) == 0
    for made in (html, markdown):
        assert made.read_bytes() == (PAGES / made.name).read_bytes(), f"{made.name} is stale; run `make study-run`"
