"""The patched base is what each design says, runs, and keeps its lines."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from typecheck.out_of_tree.designs import DESIGNS, WIDENED, Design, PatchError, patch_base
from typecheck.out_of_tree.imports import failing, refusal
from typecheck.out_of_tree.inventory import Inventory

PATH = "vllm/v1/attention/backend.py"
NAMES = [design.name for design in DESIGNS]


def named(name: str) -> Design:
    return next(design for design in DESIGNS if design.name == name)


@pytest.fixture
def source(tiny: Path) -> str:
    return (tiny / PATH).read_text(encoding="utf-8")


def base_class(code: str) -> ast.ClassDef:
    found = [node for node in ast.parse(code).body if isinstance(node, ast.ClassDef)]
    return found[-1]


def hints(code: str) -> dict[str, list[str]]:
    """The hints of ``cls`` and ``kv_cache_spec`` in each method."""
    return {
        node.name: [
            ast.unparse(each.annotation) if each.annotation else ""
            for each in node.args.args
            if each.arg in ("cls", "kv_cache_spec")
        ]
        for node in base_class(code).body
        if isinstance(node, ast.FunctionDef)
    }


def test_names_are_unique_and_the_baseline_comes_first() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert DESIGNS[0] is WIDENED


def test_the_widened_base_is_left_as_it_is(source: str) -> None:
    assert patch_base(source, WIDENED) == source


def test_asserting(source: str) -> None:
    found = hints(patch_base(source, named("asserting")))
    assert found["__init__"] == ["'AttentionSpec'"]
    assert found["get_cudagraph_support"] == ["type['AttentionMetadataBuilder']", "'AttentionSpec'"]


def test_generic(source: str) -> None:
    code = patch_base(source, named("generic"))
    assert [ast.unparse(base) for base in base_class(code).bases] == ["ABC", "Generic[M, S]"]
    assert hints(code)["__init__"] == ["S"]
    assert hints(code)["get_cudagraph_support"] == ["", "S"]
    assert "default='KVCacheSpec'" in ast.unparse(ast.parse(code))
    assert "self.kv_cache_spec: S = kv_cache_spec" in code
    assert "self.kv_cache_spec = kv_cache_spec" in patch_base(source, named("generic-assigned"))


def test_covariant_has_a_property_and_a_wide_hook(source: str) -> None:
    code = patch_base(source, named("generic-covariant"))
    found = hints(code)
    assert found["get_cudagraph_support"] == ["", "'KVCacheSpec'"]
    assert "kv_cache_spec" in found
    assert "self._kv_cache_spec = kv_cache_spec" in code
    assert "covariant=True" in code


@pytest.mark.parametrize(("name", "returns"), [("widened-lookup", "bare"), ("generic-migrated-any-lookup", "any")])
def test_the_lookup_is_annotated(source: str, name: str, returns: str) -> None:
    code = patch_base(source, named(name))
    wanted = {"bare": "type['AttentionMetadataBuilder']", "any": "type['AttentionMetadataBuilder[Any, Any]']"}
    functions = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
    lookup = next(node for node in functions if node.name == "get_builder_cls")
    assert lookup.returns is not None
    assert ast.unparse(lookup.returns) == wanted[returns]


@pytest.mark.parametrize("name", NAMES)
def test_lines_above_the_end_of_the_class_do_not_move(source: str, name: str) -> None:
    before, after = source.splitlines(), patch_base(source, named(name)).splitlines()
    where = next(number for number, line in enumerate(before) if "def build(" in line)
    assert after[where] == before[where]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class AttentionMetadataBuilder(", "class Other(", "expected one top-level class AttentionMetadataBuilder"),
        ('M = TypeVar("M")', "M = None", "expected one top-level M"),
        ("Generic[M]", "Generic[M, Q]", "already has 2 type parameters"),
        ("(ABC, Generic[M])", "(ABC)", "has no base Generic"),
        ("def __init__", "def start", "has no method __init__"),
        ("kv_cache_spec: ", "spec: ", "has no parameter kv_cache_spec"),
        ("self.kv_cache_spec = kv_cache_spec", "pass", "expected one self.kv_cache_spec"),
    ],
)
def test_a_base_that_is_another_is_refused(source: str, old: str, new: str, message: str) -> None:
    with pytest.raises(PatchError, match=message):
        patch_base(source.replace(old, new), named("generic-covariant"))


def test_a_lookup_that_is_annotated_already_is_refused(source: str) -> None:
    with pytest.raises(PatchError, match="get_builder_cls without a return annotation, found 0"):
        patch_base(source.replace("get_builder_cls():", "get_builder_cls() -> object:"), named("widened-lookup"))


@pytest.fixture
def fake_torch(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [str(tiny), *sys.path])
    saved = sys.modules.pop("torch", None)
    yield
    if saved is not None:
        sys.modules["torch"] = saved


@pytest.mark.usefixtures("fake_torch")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arguments", ["", "[int]", "[int, int]"])
def test_what_python_refuses_is_what_is_said(source: str, name: str, arguments: str) -> None:
    """The patched base itself, subclassed by running it."""
    scope: dict[str, object] = {"__name__": "backend"}
    exec(patch_base(source, named(name)), scope)
    expected = refusal(named(name), {"": 0, "[int]": 1, "[int, int]": 2}[arguments])
    statement = f"class B(AttentionMetadataBuilder{arguments}): ..."
    if expected is None:
        exec(statement, scope)
        return
    with pytest.raises(TypeError, match=expected.partition(" for ")[0]):
        exec(statement, scope)


def test_which_builders_fail_at_import(inventory: Inventory) -> None:
    first, later = failing(inventory, named("generic-no-default"))
    assert sorted(each.name for each in first) == ["FullBuilder", "StateBuilder"]
    assert sorted(each.name for each in later) == ["Deep", "Narrowed"]
    assert failing(inventory, named("generic")) == ([], [])


def test_migrated_code_fails_on_the_released_base(inventory: Inventory) -> None:
    first, later = failing(inventory, WIDENED, arguments_added=1)
    assert sorted(each.name for each in first) == ["Bare", "FullBuilder", "StateBuilder"]
    assert sorted(each.name for each in later) == ["Deep", "Narrowed"]
    assert failing(inventory, named("generic-migrated"), arguments_added=1) == ([], [])


def test_more_arguments_than_the_base_could_take_are_refused() -> None:
    with pytest.raises(ValueError, match="asked about 3"):
        refusal(WIDENED, 3)
