"""What is found in a file, wherever it stands in it and however long it is."""

from __future__ import annotations

import pytest
from migrated import migrate_text

from genericbuilders.migration import run as runs
from genericbuilders.migration.engine import migrate
from genericbuilders.migration.files import find
from genericbuilders.migration.project import Project
from genericbuilders.migration.result import Target
from genericbuilders.migration.run import Engine

HEAD = """from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import MambaSpec


"""
CLASS = """class Mine(AttentionMetadataBuilder[int]):
    def __init__(self, kv_cache_spec: MambaSpec, layer_names, vllm_config, device):
        assert isinstance(kv_cache_spec, MambaSpec)
        self.sizes = 1
"""
PLACES = {
    "match": "match KIND:\n    case 1:\n{}",
    "async with": "async def make():\n    async with KIND:\n{}",
    "async for": "async def make():\n    async for KIND in KIND:\n{}",
    "else of for": "for each in KIND:\n        pass\nelse:\n{}",
    "else of while": "while KIND:\n    pass\nelse:\n{}",
    "except*": "try:\n    pass\nexcept* ValueError:\n{}",
}
LONG = {
    "sum": "x = " + " + ".join(["1"] * 400),
    "strings": "x = (" + "\n".join(['"a"'] * 500) + ")",
    "calls": "x = a" + ".f()" * 200,
    "elif": "if x: pass\n" + "".join(f"elif x == {number}: pass\n" for number in range(400)),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_builder_in_any_block_is_found(place: str) -> None:
    inside = "".join(f"        {line}\n" for line in CLASS.splitlines())
    made = migrate_text(HEAD + "KIND = ()\n" + PLACES[place].format(inside))
    assert "AttentionMetadataBuilder[int, MambaSpec]" in made.text()


@pytest.mark.parametrize("end", ["\f", "\v", "\u2028", "\x1c", "\x85"])
def test_a_marker_stands_in_the_line_that_python_counts(end: str) -> None:
    marked = "class Mine(AttentionMetadataBuilder[int]):  # genericbuilders: spec=MambaSpec\n    pass\n"
    made = migrate_text(f"{HEAD}TEXT = '{end}'\n{marked}")
    assert made.report("Mine").spec == "MambaSpec"


def test_a_finding_says_where_in_its_line_the_statement_stands() -> None:
    made = migrate_text(HEAD + CLASS)
    (found,) = [each for each in made.report("Mine").findings if each.rule == "needless-assert"]
    assert (found.line, found.column) == (7, 9)


@pytest.mark.parametrize("kind", LONG)
def test_a_long_expression_is_no_fault(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("long")
    (folder / "long.py").write_text(f"{HEAD}{CLASS}{LONG[kind]}\n")
    done = runs.run(Engine(Project.read, migrate), find([folder]), Target.GENERIC, workers=1)
    assert done.failures == ()
    assert "[int, MambaSpec]" in done.changed[0].after


def test_one_that_is_too_long_is_skipped_with_advice(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_DEPTH", 0)
    folder = tmp_path_factory.mktemp("long")
    (folder / "long.py").write_text(f"{HEAD}{CLASS}{LONG['sum']}\n")
    done = runs.run(Engine(Project.read, migrate), find([folder]), Target.GENERIC, workers=1)
    (failure,) = done.failures
    assert failure.reason == "it is nested too deeply to be rewritten; split its longest expression or elif chain"
