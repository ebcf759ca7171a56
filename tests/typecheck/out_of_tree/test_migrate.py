"""Builders that say a narrow spec name it to their base; nothing else changes, and no line moves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from typecheck.out_of_tree.inventory import Builder, Inventory, Tree, take_inventory
from typecheck.out_of_tree.migrate import Migrated, migrate_file, strip_file


def of(inventory: Inventory, path: str) -> list[Builder]:
    return [builder for builder in inventory.builders if builder.path == path]


def changed(before: str, after: str) -> list[tuple[str, str]]:
    """The lines that differ, stripped; both texts have the same number of lines."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    return [(old.strip(), new.strip()) for old, new in pairs if old != new]


def migrated(tiny: Path, inventory: Inventory, path: str) -> tuple[list[tuple[str, str]], Migrated]:
    before = (tiny / path).read_text(encoding="utf-8")
    done = migrate_file(before, of(inventory, path))
    return changed(before, done.code), done


def test_a_hint_becomes_an_argument_and_the_assert_goes(tiny: Path, inventory: Inventory) -> None:
    lines, done = migrated(tiny, inventory, "vllm/v1/attention/backends/full.py")
    assert lines == [
        (
            "class FullBuilder(AttentionMetadataBuilder[int]):",
            'class FullBuilder(AttentionMetadataBuilder[int, "AttentionSpec"]):',
        ),
        ("assert isinstance(kv_cache_spec, AttentionSpec)", "pass"),
    ]
    assert (done.bases, done.re_annotations, done.asserts) == (1, 0, 1)


def test_a_re_annotation_becomes_an_argument(tiny: Path, inventory: Inventory) -> None:
    lines, done = migrated(tiny, inventory, "vllm/v1/attention/backends/state.py")
    assert lines == [
        (
            "class StateBuilder(AttentionMetadataBuilder[int]):",
            'class StateBuilder(AttentionMetadataBuilder[int, "MambaSpec"]):',
        ),
        ("kv_cache_spec: MambaSpec", "pass"),
    ]
    assert (done.bases, done.re_annotations, done.asserts) == (1, 1, 0)


def test_a_bare_base_under_another_name(tiny: Path, inventory: Inventory) -> None:
    lines, done = migrated(tiny, inventory, "plug/builders.py")
    assert lines == [
        ("import plug", "import plug; from typing import Any"),
        ("class Bare(Base):", 'class Bare(Base[Any, "MambaSpec"]):'),
    ]
    assert done.bases == 1


def test_any_is_not_imported_twice(tiny: Path, inventory: Inventory) -> None:
    path = "plug/builders.py"
    text = (tiny / path).read_text(encoding="utf-8").replace("import plug\n", "from typing import Any, cast\n")
    done = migrate_file(text, of(inventory, path))
    assert changed(text, done.code) == [("class Bare(Base):", 'class Bare(Base[Any, "MambaSpec"]):')]


def test_a_base_reached_through_a_module(tiny: Path) -> None:
    path = "plug/builders.py"
    (tiny / path).write_text(
        "from vllm.v1.attention import backend\n\n\nclass A(backend.AttentionMetadataBuilder[int]):\n"
        "    kv_cache_spec: MambaSpec\n",
        encoding="utf-8",
    )
    inventory = take_inventory(Tree(tiny, ["vllm", "plug"]))
    lines, _ = migrated(tiny, inventory, path)
    assert lines[0][1] == 'class A(backend.AttentionMetadataBuilder[int, "MambaSpec"]):'


def test_a_class_in_a_function_and_a_local_of_the_same_name(tiny: Path) -> None:
    path = "plug/builders.py"
    text = (
        "from vllm.v1.attention.backend import AttentionMetadataBuilder\n\n\ndef make():\n"
        "    class A(AttentionMetadataBuilder[int]):\n"
        "        kv_cache_spec: MambaSpec\n\n"
        "        def build(self):\n"
        "            kv_cache_spec: object = 1\n"
        "            return kv_cache_spec\n"
    )
    (tiny / path).write_text(text, encoding="utf-8")
    inventory = take_inventory(Tree(tiny, ["vllm", "plug"]))
    lines, done = migrated(tiny, inventory, path)
    assert [new for _, new in lines] == ['class A(AttentionMetadataBuilder[int, "MambaSpec"]):', "pass"]
    assert done.re_annotations == 1


def test_stripping_names_nothing(tiny: Path, inventory: Inventory) -> None:
    results: list[tuple[str, str]] = []
    for path in ("vllm/v1/attention/backends/full.py", "vllm/v1/attention/backends/state.py", "plug/builders.py"):
        before = (tiny / path).read_text(encoding="utf-8")
        done = strip_file(before, of(inventory, path))
        results += changed(before, done.code)
        assert done.bases == 0
    assert results == [
        ("assert isinstance(kv_cache_spec, AttentionSpec)", "pass"),
        ("kv_cache_spec: MambaSpec", "pass"),
    ]


def test_an_assert_of_another_spec_stays_where_the_spec_is_named(tiny: Path, inventory: Inventory) -> None:
    path = "vllm/v1/attention/backends/full.py"
    text = (tiny / path).read_text(encoding="utf-8").replace("(kv_cache_spec, AttentionSpec)", "(kv_cache_spec, Other)")
    assert migrate_file(text, of(inventory, path)).asserts == 0
    assert strip_file(text, of(inventory, path)).asserts == 1


def test_a_builder_that_is_elsewhere_is_an_error(tiny: Path, builders: dict[str, Builder]) -> None:
    text = (tiny / "plug/builders.py").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="not found where they were counted: Bare"):
        migrate_file(text, [replace(builders["Bare"], line=1)])
