"""Every rule that a finding can have is explained."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The place of the rule among the arguments of what makes a finding.
MAKERS = {"find": 0, "Finding": 2, "leave": 2}


def rules() -> Iterator[str]:
    for path in sorted((ROOT / "genericbuilders" / "migration").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                place = MAKERS.get(name)
                given = None if place is None or place >= len(node.args) else node.args[place]
            elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
                given = node.elts[0]
            else:
                continue
            if isinstance(given, ast.Constant) and isinstance(given.value, str) and "-" in given.value:
                yield given.value


def test_every_rule_is_explained_and_no_other() -> None:
    page = (ROOT / "docs" / "migrate-rules.md").read_text(encoding="utf-8")
    explained = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(set(rules())) == sorted(explained)
