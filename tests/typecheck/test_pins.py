from __future__ import annotations

from pathlib import Path

import pytest

from genericbuilders.checkers import CHECKERS
from typecheck.pins import PINS, PinError, others, read_pins
from typecheck.study import FOLDER
from typecheck.verdict import Result

PINNED = "# why\n" + "".join(f"{checker.package}==1.{number}\n" for number, checker in enumerate(CHECKERS))


def pinned(tmp_path: Path, text: str) -> Path:
    path = tmp_path / PINS
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_pinned_is_read(tmp_path: Path) -> None:
    path = pinned(tmp_path, PINNED.replace("1.5", '1.5; extra == "zuban"  # licence'))
    assert read_pins(path) == {checker.name: f"1.{number}" for number, checker in enumerate(CHECKERS)}


def test_the_study_pins_what_the_library_was_tested_with() -> None:
    assert read_pins(FOLDER / PINS) == {checker.name: checker.tested for checker in CHECKERS}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PINNED.replace("==1.0", ">=1.0"), r"requirements\.txt:2: 'mypy>=1\.0' is no package==version"),
        (PINNED.replace("ty==1.4\n", ""), r"requirements\.txt: it pins no version of ty"),
    ],
)
def test_what_pins_nothing_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PinError, match=message):
        _ = read_pins(pinned(tmp_path, text))


def test_pins_that_are_no_text(tmp_path: Path) -> None:
    path = pinned(tmp_path, "")
    path.write_bytes(b"\xff")
    with pytest.raises(PinError, match=r"requirements\.txt: "):
        _ = read_pins(path)
    path.unlink()
    with pytest.raises(PinError, match=r"requirements\.txt: "):
        _ = read_pins(path)


def test_another_version_is_told_with_both() -> None:
    results = [Result("ty", level, "0.2", {}, (), ()) for level in ("default", "all")]
    assert others({"ty": "0.2"}, results) == []
    assert others({"ty": "0.1"}, results) == ["requirements.txt: ty is pinned at 0.1, and 0.2 is installed"]
