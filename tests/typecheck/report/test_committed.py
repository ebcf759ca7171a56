"""The page in docs/ is what the committed results say."""

from __future__ import annotations

from pathlib import Path

from typecheck.commands.reporting import tell
from typecheck.study import FOLDER

PAGE = FOLDER.parent / "docs" / "study" / "report.html"


def test_the_page_is_of_these_results(tmp_path: Path) -> None:
    made = tmp_path / "report.html"

    assert tell(False, made) == 0
    assert made.read_bytes() == PAGE.read_bytes(), f"run `python -m typecheck report --html {PAGE}`"
