"""Builders are found through imports and re-exports, with what they say of their spec."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from typecheck.out_of_tree.hatches import Hatches, count_hatches
from typecheck.out_of_tree.inventory import Builder, Inventory, Tree, take_inventory


def test_every_builder_is_found(builders: dict[str, Builder]) -> None:
    assert sorted(builders) == ["Bare", "Deep", "FullBuilder", "Narrowed", "StateBuilder", "Wrapped"]


def test_direct_ones_through_a_re_export_and_their_arguments(builders: dict[str, Builder]) -> None:
    assert {name: (each.direct, each.arguments) for name, each in builders.items()} == {
        "FullBuilder": (True, 1),
        "StateBuilder": (True, 1),
        "Wrapped": (False, 0),
        "Bare": (True, 0),
        "Narrowed": (False, 0),
        "Deep": (False, 0),
    }


def test_a_base_that_is_a_value(builders: dict[str, Builder]) -> None:
    assert [name for name, each in builders.items() if each.dynamic_base] == ["Wrapped"]
    assert [name for name, each in builders.items() if each.nested] == ["Wrapped"]


def test_hints(builders: dict[str, Builder]) -> None:
    assert builders["FullBuilder"].init_hint == "AttentionSpec"
    assert builders["Bare"].init_hint == "MambaSpec"
    assert builders["Deep"].init_hint == ""
    assert builders["StateBuilder"].init_hint is None
    assert builders["StateBuilder"].re_annotation == "MambaSpec"
    assert builders["StateBuilder"].hook_hints == {"get_cudagraph_support": "KVCacheSpec"}
    assert builders["Narrowed"].hook_hints == {"get_cudagraph_support": "AttentionSpec"}


def test_the_spec_of_a_builder_that_says_none_is_its_ancestors(inventory: Inventory) -> None:
    said = {each.name: inventory.spec_of(each) for each in inventory.builders}
    assert said["Narrowed"] == "AttentionSpec"
    assert said["Deep"] == "MambaSpec"
    assert said["Wrapped"] == "KVCacheSpec"


def test_what_looks_like_a_builder_and_cannot_be_followed_is_listed(inventory: Inventory) -> None:
    assert [(path, name, base) for path, _, name, base in inventory.unjudged] == [
        ("plug/builders.py", "LostMetadataBuilder", "Gone")
    ]


def test_a_tree_without_the_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no class vllm.v1.attention.backend.AttentionMetadataBuilder"):
        take_inventory(Tree(tmp_path, ["vllm"]))


def test_hatches_are_told_apart() -> None:
    text = """class B:
    kv_cache_spec: MambaSpec
    def __init__(self, kv_cache_spec):
        assert isinstance(kv_cache_spec, MambaSpec)
        if isinstance(self.kv_cache_spec, AttentionSpec):
            x = cast(AttentionSpec, self.kv_cache_spec)
        y = self.kv_cache_spec.shapes  # type: ignore[attr-defined]
        assert y, "no shapes"
    def get(self, kv_cache_spec: Any): ...
    def other(self, kv_cache_spec: MambaSpec): ...
"""
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.ClassDef)
    found = count_hatches(node, text.splitlines())
    assert found == Hatches(re_annotations=1, asserts=1, isinstance_tests=1, casts=1, ignores=1, any_hints=2)
    assert found.any_at_all
    assert not Hatches().any_at_all
    assert found + found == Hatches(2, 2, 2, 2, 2, 4)
