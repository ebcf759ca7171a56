"""Call sites are wrapped without moving a line; the answers of checkers become counts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from typecheck.out_of_tree.checking import Finding
from typecheck.out_of_tree.figures import Checked, answers, call_sites, changes, sorted_counts
from typecheck.out_of_tree.inventory import Inventory
from typecheck.out_of_tree.places import Places
from typecheck.out_of_tree.probe import PROBE_FILE, QUESTIONS, probe_module, reveal_sites


@pytest.mark.parametrize(
    ("before", "after", "sites"),
    [
        ("x = b.get_builder_cls()(1)\n", "x = reveal_type(b.get_builder_cls())(1)\n", ["get_builder_cls"]),
        (
            "self.get_metadata_builder(0).build(1)\n",
            "reveal_type(reveal_type(self.get_metadata_builder(0)).build(1))\n",
            ["build", "get_metadata_builder"],
        ),
        ('x = ("é", builder.build(\n  1,\n))\n', 'x = ("é", reveal_type(builder.build(\n  1,\n)))\n', ["build"]),
        ("docker.build(1)\n", "docker.build(1)\n", []),
        ("super().builder.build(1)\n", "super().builder.build(1)\n", []),
        ("build(builder)\n", "build(builder)\n", []),
        (
            "def get_builder_cls():\n    return x.get_builder_cls()\n",
            "def get_builder_cls():\n    return x.get_builder_cls()\n",
            [],
        ),
        ("a = '\x0c'\nb.get_builder_cls()\n", "a = '\x0c'\nreveal_type(b.get_builder_cls())\n", ["get_builder_cls"]),
    ],
)
def test_reveal(before: str, after: str, sites: list[str]) -> None:
    revealed = reveal_sites(before, [])
    assert revealed.code == after
    assert [method for _, method in revealed.sites] == sites


def test_calls_in_builders_are_no_call_sites() -> None:
    text = "class B:\n    def f(self):\n        return self.builder.build(1)\n\n\nbuilder.build(2)\n"
    revealed = reveal_sites(text, [(1, 3)])
    assert revealed.sites == ((6, "build"),)


def test_the_module_of_questions(inventory: Inventory) -> None:
    module = probe_module(inventory.builders)
    assert [builder.name for builder in module.builders] == ["FullBuilder", "StateBuilder", "Bare", "Narrowed", "Deep"]
    lines = module.code.splitlines()
    assert [lines[first - 1].strip() for first in module.first_lines] == ["reveal_type(b.kv_cache_spec)"] * 5
    ast.parse(module.code)


def ask(inventory: Inventory, found: list[tuple[str, str, str]]) -> dict[str, object]:
    """The answers where (builder, question, message) were reported."""
    module = probe_module(inventory.builders)
    lines = {builder.name: first for builder, first in zip(module.builders, module.first_lines, strict=True)}
    findings = [
        Finding(
            PROBE_FILE,
            lines[name] + QUESTIONS.index(question),
            1,
            "",
            message,
            "reveal" if question == "attribute" else "error",
        )
        for name, question, message in found
    ]
    return answers(module, inventory, findings)


def test_answers(inventory: Inventory) -> None:
    wide = 'Argument 1 to "B0" has incompatible type "KVCacheSpec"; expected "AttentionSpec"'
    found = ask(
        inventory,
        [
            ("FullBuilder", "attribute", "vllm.v1.kv_cache_interface.KVCacheSpec"),
            ("FullBuilder", "constructor", wide),
            ("StateBuilder", "attribute", "MambaSpec"),
            ("Bare", "attribute", "AttentionSpec"),
            ("Narrowed", "attribute", "MambaSpec"),
            ("Narrowed", "hook", 'Argument of type "KVCacheSpec" cannot be assigned to "AttentionSpec"'),
            ("Narrowed", "constructor", "Missing positional argument"),
            (
                "Deep",
                "class_slot",
                'expression has type "type[Deep]", variable has type "type[AttentionMetadataBuilder]"',
            ),
            (
                "FullBuilder",
                "class_slot",
                'Only concrete class can be given where "AttentionMetadataBuilder" is expected',
            ),
        ],
    )
    assert found["in_tree"] == {
        "asked": 2,
        "says_narrow": 2,
        "sees_its_spec": 1,
        "sees_wider": 1,
        "sees_other": 0,
        "hook_refuses": 0,
        "constructor_refuses": 1,
        "class_slot_refuses": 0,
        "instance_slot_refuses": 0,
        "attribute": {"KVCacheSpec": 1, "MambaSpec": 1},
    }
    assert found["out_of_tree"] == {
        "asked": 3,
        "says_narrow": 3,
        "sees_its_spec": 0,
        "sees_wider": 1,
        "sees_other": 2,
        "hook_refuses": 1,
        "constructor_refuses": 0,
        "class_slot_refuses": 1,
        "instance_slot_refuses": 0,
        "attribute": {"AttentionSpec": 1, "MambaSpec": 1, "no answer": 1},
    }


def test_call_sites_on_one_line_are_told_apart_by_their_column() -> None:
    findings = [
        Finding("vllm/a.py", 3, 1, "", "pkg.mod.Meta | Unknown", "reveal"),
        Finding("vllm/a.py", 3, 13, "", "Builder[S@Builder]", "reveal"),
        Finding("vllm/a.py", 3, 30, "", "an error", "error"),
    ]
    sites = {("vllm/a.py", 3): ["build", "get_metadata_builder"], ("plug/b.py", 1): ["build"]}
    assert call_sites(findings, sites) == {
        "in_tree": {"build": {"Meta | Any": 1}, "get_metadata_builder": {"Builder[S]": 1}},
        "out_of_tree": {"build": {"not analysed": 1}},
    }


def test_changes_are_summed_by_side(tiny: Path, inventory: Inventory) -> None:
    names = {"plug/builders.py": frozenset({"Bare", "Narrowed"})}
    places = Places(tiny, names)
    text = (tiny / "plug/builders.py").read_text(encoding="utf-8").splitlines()
    lines = [number for number, line in enumerate(text, 1) if line.lstrip().startswith("def ")]
    old = Finding("plug/runner.py", 8, 1, "x", "gone")
    new = [Finding("plug/builders.py", line, 1, "override", f"{line}") for line in lines[:3]]
    probe = Finding(PROBE_FILE, 1, 1, "x", "not counted")
    found = changes(Checked((old,), places), Checked((*new, probe), places))
    summary = found["summary"]
    assert isinstance(summary, dict)
    assert summary["in_tree"] == {
        "new": 0,
        "gone": 0,
        "builders_broken": 0,
        "files_broken": 0,
        "projects_broken": 0,
        "new_at": {},
    }
    assert summary["out_of_tree"] == {
        "new": 3,
        "gone": 1,
        "builders_broken": 2,
        "files_broken": 1,
        "projects_broken": 1,
        "new_at": {"constructor": 1, "hook override": 1, "method": 1},
    }
    assert found["errors"] == {"plug": 3}


def test_counts_come_largest_first() -> None:
    assert list(sorted_counts({"b": 1, "c": 3, "a": 1})) == ["c", "a", "b"]
