"""The architecture page names what is in the tree, and all of the library that a reader must know of."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:genericbuilders|adapters)/[\w/.]*)`", PAGE)))
# `path.py` `name`, with a line's end between them or not.
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)`\s+`([\w.]+)`", PAGE)))
LINKS = sorted(set(re.findall(r"\]\(([^)#:]+)\)", README)))


def definitions(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    """The dotted names of a module's classes, functions and methods."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from definitions(node, f"{prefix}{node.name}.")


@pytest.mark.parametrize("path", PATHS)
def test_what_is_named_is_there(path: str) -> None:
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file()


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_names_are_where_the_page_says(path: str, name: str) -> None:
    assert name in set(definitions(ast.parse((ROOT / path).read_text(encoding="utf-8"))))


def test_nothing_of_the_house_is_left_out() -> None:
    library = ROOT / "genericbuilders"
    modules = {f"genericbuilders/{path.name}" for path in library.glob("*.py") if path.name != "__init__.py"}
    packages = {f"{path.parent.relative_to(ROOT)}/" for path in library.glob("*/**/__init__.py")}
    adapters = {f"{path.parent.relative_to(ROOT)}/" for path in ROOT.glob("adapters/*/__init__.py")}
    assert sorted((modules | packages | adapters) - set(PATHS)) == []


def test_every_name_was_read() -> None:
    assert len(NAMED) >= 15


@pytest.mark.parametrize("link", LINKS)
def test_links_of_the_readme_lead_somewhere(link: str) -> None:
    assert (ROOT / link).is_file()
