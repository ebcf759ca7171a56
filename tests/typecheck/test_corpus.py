from __future__ import annotations

from pathlib import Path

import pytest

from typecheck.corpus import CorpusError, Design, Raises, Returns, Shows, read_corpus

MISTAKE = '"""The author\nerred.\n\nAt run time: {}\n"""\n\nx = 1\ny = x  # E\n'
TABLE = 'title = "A kind"\n[cases.one]\nexpressible = true\nreason = "so"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for design in Design:
        write(tmp_path, f"designs/{design}/program.py", '"""A program."""\n')
        write(tmp_path, f"cases/kind/one/{design}.py", MISTAKE.format("KeyError: x"))
        write(tmp_path, f"variants/kind/right/{design}.py", '"""It is right."""\n')
    write(tmp_path, "variants/kind/family.toml", 'title = "Right"\n')
    write(tmp_path, "designs/shared/all.py", '"""Shared."""\n')
    write(tmp_path, "cases/kind/family.toml", TABLE)
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_what_is_there_is_read(folder: Path) -> None:
    corpus = read_corpus(folder)
    (fault,) = corpus.faults
    case = fault.cases[Design.GENERIC]

    assert (fault.key, fault.expressible, fault.reason) == ("kind/one", True, "so")
    assert (case.mistake, case.line, case.marks) == ("The author erred.", 8, frozenset({8}))
    assert [variant.key for variant in corpus.variants] == ["kind/right"] * 4
    assert len(corpus.files) == 4 + 4 + 4 + 1
    assert len(set(corpus.files)) == len(corpus.files)
    assert corpus.short(case.path) == "cases/kind/one/generic.py"


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        ("KeyError: 'x'", Raises("KeyError", "'x'")),
        ("AssertionError:", Raises("AssertionError", "")),
        ("wrong: [1; 2]; right: 3", Returns("[1; 2]", "3")),
        ("nothing: it shows\nlater", Shows("it shows later")),
    ],
)
def test_every_outcome_is_read(folder: Path, told: str, outcome: object) -> None:
    write(folder, "cases/kind/one/generic.py", MISTAKE.format(told))

    assert read_corpus(folder).faults[0].cases[Design.GENERIC].outcome == outcome


def test_marks_may_stand_beside_the_line(folder: Path) -> None:
    write(folder, "cases/kind/one/generic.py", MISTAKE.format("E: x").replace("x = 1", "x = 1  # E?"))

    case = read_corpus(folder).faults[0].cases[Design.GENERIC]
    assert (case.line, case.marks) == (8, frozenset({7, 8}))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("cases/kind/one/generic.py", MISTAKE.format("KeyError: x").replace("# E", ""), "0 lines end in '# E'"),
        ("cases/kind/one/generic.py", MISTAKE.format("KeyError: x") + "z = 1  # E\n", "2 lines end in '# E'"),
        ("cases/kind/one/generic.py", MISTAKE.format("KeyError: x") + "\nz = 1  # E?\n", "marked with a gap"),
        ("cases/kind/one/generic.py", MISTAKE.format(""), "needs 'At run time"),
        ("cases/kind/one/generic.py", MISTAKE.format("wrong: 2"), "needs 'At run time"),
        ("cases/kind/one/generic.py", MISTAKE.format("nothing:"), "needs 'At run time"),
        ("cases/kind/one/generic.py", "x = 1  # E\n", "the docstring is missing"),
        ("cases/kind/one/generc.py", MISTAKE.format("KeyError: x"), "no design of that name"),
        ("cases/kind/family.toml", TABLE.replace("true", "1"), "must be true or false"),
        ("cases/kind/family.toml", TABLE.replace('"so"', '""'), "reason must be a text"),
        ("cases/kind/family.toml", TABLE + 'absent.generic = "no"\n', "is there although"),
        ("cases/kind/family.toml", TABLE + "[cases.two]\n", "there is no folder for cases.two"),
        ("cases/kind/family.toml", TABLE.replace("cases.one", "cases.other"), "cases.one is missing"),
        ("cases/kind/family.toml", "title =", "family.toml"),
        ("cases/kind/two/generic.py", MISTAKE.format("KeyError: x"), "two/asserting.py: missing"),
        ("variants/kind/right/generic.py", '"""It is right."""\nx = 1  # E\n', "has no marks"),
        ("variants/kind/family.toml", "[variants.gone]\n", "there is no folder for variants.gone"),
        ("variants/kind/family.toml", "[variants.right]\nunchanged.other = 'x'\n", "other"),
        ("variants/kind/other/generic.py", '"""It is right."""\n', "other/asserting.py: missing"),
        ("cases/kind/stray.py", "", "cases/kind/stray.py: only family.toml and folders of cases may be here"),
        ("cases/stray.py", "", "cases/stray.py: only folders of families may be here"),
        ("cases/kind/one/generic.pyi", "", "one/generic.pyi: no design of that name"),
        ("cases/kind/one/more/generic.py", "", "one/more: no design of that name"),
        ("variants/kind/stray.py", "", "variants/kind/stray.py: only family.toml and folders of variants"),
        ("variants/stray.toml", "", "variants/stray.toml: only folders of families may be here"),
        ("cases/kind/family.toml", 'expressible = "x"\n' + TABLE, "expressible is no key; there are title, cases"),
        ("cases/kind/family.toml", TABLE + "expresible = true\n", "cases.one.expresible is no key; there are expr"),
        ("variants/kind/family.toml", "[variants.right]\nabsents.generic = 'x'\n", "variants.right.absents is no key"),
        ("cases/kind/one/generic.py", "x = (\n", "one/generic.py:1: '.' was never closed"),
        ("cases/kind/one/generic.py", "x = 1\0\n", "one/generic.py: source code string cannot contain null bytes"),
        ("variants/kind/right/generic.py", "\n\nx = = 1\n", "right/generic.py:3: invalid syntax"),
    ],
)
def test_what_is_malformed_is_refused(folder: Path, name: str, text: str, message: str) -> None:
    write(folder, name, text)

    with pytest.raises(CorpusError, match=message.replace("'", ".")):
        _ = read_corpus(folder)


def test_a_design_may_be_left_out_for_a_reason(folder: Path) -> None:
    (folder / "cases/kind/one/generic.py").unlink()
    (folder / "variants/kind/right/generic.py").unlink()
    with pytest.raises(CorpusError, match=r"generic\.py: missing"):
        _ = read_corpus(folder)

    write(folder, "cases/kind/family.toml", TABLE + 'absent.generic = "cannot be written"\n')
    write(folder, "variants/kind/family.toml", '[variants.right]\nabsent.generic = "cannot be written"\n')
    corpus = read_corpus(folder)
    assert corpus.faults[0].absent == {Design.GENERIC: "cannot be written"}
    assert Design.GENERIC not in corpus.faults[0].cases
    assert len(corpus.variants) == 3


def test_a_variant_may_be_code_that_its_design_asks_to_change(folder: Path) -> None:
    write(folder, "variants/kind/family.toml", '[variants.right]\nunchanged.generic = "name both"\n')

    told = {variant.design: variant.unchanged for variant in read_corpus(folder).variants}
    assert told == {
        Design.ASSERTING: "",
        Design.WIDENED: "",
        Design.GENERIC: "name both",
        Design.COVARIANT: "",
    }


@pytest.mark.parametrize("name", ["cases/kind/one/generic.py", "variants/kind/right/generic.py"])
def test_what_is_no_text_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"# one\n# \xe9\n")
    with pytest.raises(CorpusError, match=rf"{name}:2: byte 0xe9 is not UTF-8"):
        _ = read_corpus(folder)


def test_what_tools_leave_behind_does_not_matter(folder: Path) -> None:
    for name in ("cases/kind/__pycache__/x.pyc", "cases/kind/one/__pycache__/x.pyc", "cases/.hidden/x.py"):
        write(folder, name, "")
    assert len(read_corpus(folder).families) == 1


def test_lines_are_counted_as_checkers_count_them(folder: Path) -> None:
    write(folder, "cases/kind/one/generic.py", MISTAKE.format("E: x").replace("x = 1", "x = '\x0c\u2028'"))
    assert read_corpus(folder).faults[0].cases[Design.GENERIC].line == 8
