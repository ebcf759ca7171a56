from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_up_study import add_causes, add_costs, add_outside, write
from typing_extensions import override

from typecheck.commands.reporting import tell
from typecheck.corpus import Design
from typecheck.report.figures import Count
from typecheck.report.layout import Cell, Table
from typecheck.study import labels

VOID = {"meta"}


class Outline(HTMLParser):
    """The elements in order, each closed where it must be, and the text of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def cells(self, kind: str) -> list[str | None]:
        return [
            values.get("title")
            for tag, values in self.seen
            if tag == "td" and kind in (values.get("class") or "").split()
        ]


def made_page(study: Path) -> str:
    path = study / "new" / "report.html"
    assert tell(False, path, folder=study) == 0
    return path.read_text(encoding="utf-8")


@pytest.fixture
def full(study: Path) -> Path:
    _ = add_costs(study)
    add_causes(study)
    add_outside(study)
    return study


def test_the_page_is_well_formed_and_has_every_fault(full: Path) -> None:
    outline = Outline()
    outline.feed(made_page(full))

    assert outline.open == []
    kinds = {kind: outline.cells(kind) for kind in ("caught", "missed", "absent")}
    assert sum(map(len, kinds.values())) == 4 * len(labels()) * len(Design)
    assert len(kinds["caught"]) == 6 + 6
    assert len(kinds["absent"]) == 2 * len(labels())
    assert "mypy-strict, generic: <code>" in kinds["caught"]
    assert "mypy-strict, asserting: cannot be made: has no slot" in kinds["absent"]


def test_the_page_needs_nothing_else(full: Path) -> None:
    page = made_page(full)

    assert not re.search(r"<(script|link|img|iframe)|@import|url\(|src=|href=", page)
    assert "prefers-color-scheme: dark" in page
    assert "<html lang=" in page


def test_what_it_tells_is_escaped(full: Path) -> None:
    page = made_page(full)

    assert "Said &lt;wrongly&gt;" in page
    assert "<erred>" not in page
    assert "Held &amp; looked up" in page


def test_the_page_is_the_same_each_time(full: Path) -> None:
    assert made_page(full) == made_page(full)


def test_the_page_says_which_faults_no_type_tells(full: Path) -> None:
    page = made_page(full)

    assert "name *</th>" in page
    assert "field</th>" in page


def test_tables(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tell(False, None, folder=full) == 0

    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 180
    for some in (
        "Was the review right",
        "100.0 % (3/3)",
        "held/list/widened",
        "A reason",
        "https://example.org/spec",
        "variants/held/right/widened.py:2",
        "20.00 (40.00)",
        "zuban-strict gave nothing: missing: it is not there.",
        "some-plugin 0.3",
    ):
        assert some in text, some


def test_what_is_not_there_yet_is_said(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tell(False, None, folder=study) == 0

    text = capsys.readouterr().out
    assert "is not explained yet" in text
    assert "`python -m typecheck measure` does" in text
    assert "`python -m typecheck.out_of_tree` does" in text


def test_json_has_every_figure(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tell(True, None, folder=full) == 0

    table = json.loads(capsys.readouterr().out)
    assert table["expressible"]["mypy-strict"]["generic"] == {"hits": 3, "of": 3}
    assert table["pairs"]["covariant"]["only_second"] == ["held/slot", "said/field"]
    assert table["costs"]["running"][0]["microseconds"]["generic"]["ratio"] == 40.0
    assert table["aims_met"]["generic mypy-strict"] is True
    assert table["answers"][0]["lines"]
    assert table["outside"]["rows"][2]["class_slot_refuses"] == 8


def test_json_and_page_at_once(full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"

    assert tell(True, page, folder=full) == 0
    assert json.loads(capsys.readouterr().out)["size"]["faults"] == 4
    assert page.is_file()


def test_the_path_of_the_page_is_printed(full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tell(False, tmp_path / "report.html", folder=full) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")


def test_a_page_that_cannot_be_written(full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "file", "")

    assert tell(False, tmp_path / "file" / "report.html", folder=full) == 2
    assert "report.html cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["results/ty-all.toml", "report/call_sites.toml", "cases/held/family.toml"])
def test_a_study_that_cannot_be_read(full: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (full / name).unlink()

    assert tell(False, None, folder=full) == 2
    read = capsys.readouterr()
    assert name in read.err
    assert read.out == ""


@pytest.mark.parametrize("json", [False, True])
def test_output_that_cannot_be_written(
    full: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], json: bool
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert tell(json, None, folder=full) == 2
    monkeypatch.setattr("sys.stdout", None)
    assert tell(json, None, folder=full) == 2
    assert capsys.readouterr().err.splitlines() == [
        "the report cannot be written: No space left on device",
        "the standard output is closed; there is nowhere to write the report",
    ]


@pytest.mark.parametrize("json", [False, True])
def test_a_reader_that_has_gone(
    full: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], json: bool
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert tell(json, None, folder=full) == 141
    assert capsys.readouterr().err == ""


def test_shares_are_cut_and_that_is_said_once(full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Count(949999, 1000000).per_cent == 94.9
    html, markdown = tmp_path / "report.html", tmp_path / "index.md"
    assert tell(False, html, markdown, folder=full) == 0
    for path in (html, markdown):
        assert path.read_text(encoding="utf-8").count("are cut after the first decimal, not rounded") == 1
    _ = capsys.readouterr()


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="one: a row has 1 cells, there are 2 columns"):
        _ = Table("one", ("a", "b"), ((Cell("x"),),))
