from __future__ import annotations

from pathlib import Path

import pytest
from made_up_study import write

from typecheck.corpus import Design, read_corpus
from typecheck.marks import FILE, Marked, MarksError, marks_of, moved, read_marks, write_marks
from typecheck.study import FOLDER, RESULTS

CASE = "cases/said/field/generic.py"


def found(study: Path) -> dict[str, Marked]:
    return marks_of(read_corpus(study))


def changed(study: Path, name: str, old: str, new: str) -> dict[str, Marked]:
    path = study / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    write(study, name, text.replace(old, new, 1))
    return found(study)


def test_what_is_written_is_read(study: Path, tmp_path: Path) -> None:
    marks = found(study)
    assert marks["said/field"] == Marked(True, dict.fromkeys(Design, ("y = x  # E",)))
    assert not marks["said/name"].expressible
    assert set(marks["held/slot"].lines) == {Design.GENERIC, Design.COVARIANT}

    path = write_marks(tmp_path / "new", marks)
    assert read_marks(path.parent) == marks
    assert moved(marks, marks) == []
    assert '["said/field"]\nexpressible = true\nasserting = ["y = x  # E"]\n' in path.read_text(encoding="utf-8")


def test_a_mark_that_has_moved_is_told(study: Path) -> None:
    before = found(study)
    after = changed(study, CASE, "x = 1\ny = x  # E\n", "x = 1  # E\ny = x\n")
    assert moved(before, after) == ["marks.toml: said/field (generic): y = x  # E -> x = 1  # E"]
    assert moved(after, before) == ["marks.toml: said/field (generic): x = 1  # E -> y = x  # E"]


def test_so_is_one_that_has_moved_to_a_line_with_the_same_text(study: Path) -> None:
    before = changed(study, CASE, "y = x  # E\n", "y = x  # E\ny = x\n")
    after = changed(study, CASE, "y = x  # E\ny = x\n", "y = x\n  # no\ny = x  # E\n")
    assert moved(before, after) == ["marks.toml: said/field (generic): y = x  # E (1 of 2) -> y = x  # E (2 of 2)"]


def test_so_is_a_wider_one(study: Path) -> None:
    before = found(study)
    after = changed(study, CASE, "x = 1\n", "x = 1  # E?\n")
    assert moved(before, after) == ["marks.toml: said/field (generic): y = x  # E -> x = 1  # E? | y = x  # E"]


def test_lines_elsewhere_do_not_matter(study: Path) -> None:
    assert moved(found(study), changed(study, CASE, '"""\n\nx', '"""\n\nimport os\n\nx')) == []


def test_a_fault_that_is_new_or_gone_or_called_otherwise_is_told(study: Path) -> None:
    before = found(study)
    less = {key: marked for key, marked in before.items() if key != "held/slot"}
    there = {"expressible": "true", "(generic)": "y = x  # E", "(covariant)": "y = x  # E"}
    assert sorted(moved(before, less)) == sorted(
        f"marks.toml: held/slot{':' if what == 'expressible' else ''} {what}: {text} -> nothing"
        for what, text in there.items()
    )
    assert len(moved(less, before)) == 3
    after = changed(study, "cases/said/family.toml", "expressible = false", "expressible = true")
    assert moved(before, after) == ["marks.toml: said/name: expressible: false -> true"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a", r"at "),
        ('["k/c"]\ngeneric = ["x"]', "k/c.expressible must be true or false"),
        ('["k/c"]\nexpressible = true\ngeneric = "x"', "generic must be a list"),
        ('["k/c"]\nexpressible = true\nother = ["x"]', "'other' is not a valid Design"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, FILE, text)
    with pytest.raises(MarksError, match=f"marks.toml: .*{message}.*typecheck run"):
        _ = read_marks(tmp_path)


def test_what_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MarksError, match=r"marks.toml.*typecheck run"):
        _ = read_marks(tmp_path)


def test_the_study_is_marked_as_is_written_down() -> None:
    assert moved(read_marks(RESULTS), found(FOLDER)) == []
