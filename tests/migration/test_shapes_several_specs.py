"""Builders that may take several specs, or none, are not pinned to one."""

from __future__ import annotations

import pytest
from migrated import Migration, migrate_text

from genericbuilders.migration.result import Outcome, Target

HEAD = """import contextlib

from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    UniformTypeKVCacheSpecs,
)


class Meta:
    pass


class Mine(AttentionMetadataBuilder[Meta]):
"""
INIT = """    def __init__(self, kv_cache_spec: {}, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
"""
BOTH = pytest.mark.parametrize("target", list(Target))
SEVERAL = [
    "if isinstance(self.kv_cache_spec, AttentionSpec):\n    return 1\nassert isinstance(self.kv_cache_spec, MambaSpec)",
    "match self.kv_cache_spec:\n    case MambaSpec():\n        return self.kv_cache_spec.shapes",
    "match (self.kv_cache_spec, 1):\n    case (MambaSpec(), _):\n        return self.kv_cache_spec.shapes",
    "is_mamba = isinstance(self.kv_cache_spec, MambaSpec)\nif is_mamba:\n    return self.kv_cache_spec.shapes",
    "try:\n    return self.kv_cache_spec.shapes\nexcept AttributeError:\n    return 0",
    "try:\n    assert isinstance(self.kv_cache_spec, MambaSpec)\nexcept AssertionError:\n    return -1",
    "with contextlib.suppress(AssertionError):\n    assert isinstance(self.kv_cache_spec, MambaSpec)",
    "spec = self.kv_cache_spec\nif isinstance(spec, MambaSpec):\n    return self.kv_cache_spec.shapes",
    "if type(self.kv_cache_spec) is MambaSpec:\n    return self.kv_cache_spec.shapes",
    "if self.kv_cache_spec.__class__ is MambaSpec:\n    return self.kv_cache_spec.shapes",
    "if hasattr(self.kv_cache_spec, 'shapes'):\n    return self.kv_cache_spec.shapes",
    "assert isinstance(self.kv_cache_spec, MambaSpec) or isinstance(self.kv_cache_spec, AttentionSpec)\n"
    "assert isinstance(self.kv_cache_spec, MambaSpec)",
]


def method(text: str, name: str = "other") -> str:
    return f"\n    def {name}(self):\n" + "".join(f"        {line}\n" for line in text.splitlines())


def unchanged(source: str, target: Target) -> Migration:
    made = migrate_text(source, target)
    assert made.text() == source
    return made


@BOTH
@pytest.mark.parametrize("text", SEVERAL)
def test_a_class_that_asks_for_the_type(text: str, target: Target) -> None:
    """Cases `early_ret`, `early_return_assert`, `match_typed`, `early_return_fields`, `try_attr`, `try_assert`."""
    made = unchanged(HEAD + INIT.format("KVCacheSpec") + method(text), target)
    assert made.rules(changes=False) == {"several-specs"}
    bare = unchanged(HEAD + method(text), target)
    assert "asks for the spec's type" in bare.told("Mine")
    assert bare.report("Mine").outcome is (Outcome.REFUSED if target is Target.GENERIC else Outcome.UNCHANGED)


@pytest.mark.parametrize("text", SEVERAL)
def test_its_hint_holds_and_its_asserts_stay(text: str) -> None:
    made = migrate_text(HEAD + INIT.format("MambaSpec") + method(text))
    assert made.base("Mine") == "AttentionMetadataBuilder[Meta,MambaSpec]"
    assert method(text) in made.text()
    told = [each.message for each in made.findings() if each.rule == "needless-assert"]
    assert all(each.startswith("it stays: ") for each in told)


def test_a_handler_of_something_else_catches_nothing() -> None:
    made = migrate_text(
        HEAD + method("try:\n    return self.kv_cache_spec.shapes\nexcept (ImportError, KeyError):\n    return 0")
    )
    assert made.report("Mine").spec == "MambaSpec"


@BOTH
def test_two_demands_that_differ(target: Target) -> None:
    """Case `two_methods_two_specs`."""
    first = method("assert isinstance(self.kv_cache_spec, AttentionSpec)\nreturn 1", "first")
    second = method("assert isinstance(self.kv_cache_spec, MambaSpec)\nreturn self.kv_cache_spec.shapes", "second")
    made = unchanged(HEAD + first + second, target)
    assert "AttentionSpec in line" in made.told("Mine")
    assert "MambaSpec in line" in made.told("Mine")


def test_of_two_demands_of_one_kind_the_wider_tells() -> None:
    made = migrate_text(
        HEAD
        + method("assert isinstance(self.kv_cache_spec, FullAttentionSpec)", "first")
        + method("assert isinstance(self.kv_cache_spec, AttentionSpec)", "second")
    )
    assert made.report("Mine").spec == "AttentionSpec"
    assert "assert isinstance(self.kv_cache_spec, FullAttentionSpec)" in made.text()


def test_a_demand_behind_a_return_is_none() -> None:
    text = "if self.simple:\n    return 0\nassert isinstance(self.kv_cache_spec, MambaSpec)\nreturn 1"
    assert migrate_text(HEAD + method(text)).report("Mine").outcome is Outcome.REFUSED


def test_a_demand_with_a_message_of_its_own() -> None:
    text = "if not isinstance(self.kv_cache_spec, MambaSpec):\n    told = 'no'\n    raise TypeError(told)"
    assert migrate_text(HEAD + method(text)).report("Mine").spec == "MambaSpec"


@BOTH
@pytest.mark.parametrize(
    "line",
    [
        "self.kv_cache_spec = next(iter(kv_cache_spec.kv_cache_specs.values()))",
        "self.kv_cache_spec, self.x = layer_names",
        'setattr(self, "kv_cache_spec", layer_names[0])',
        "for self.kv_cache_spec in layer_names: pass",
    ],
)
def test_another_value_for_the_spec(line: str, target: Target) -> None:
    """Case `self_spec_unwrapped`."""
    lines = f"        {line}\n        assert isinstance(self.kv_cache_spec, FullAttentionSpec)\n"
    made = unchanged(HEAD + INIT.format("UniformTypeKVCacheSpecs") + lines, target)
    assert "something else" in made.told("Mine")
    below = f"\n\nclass Below(Mine):\n{method('assert isinstance(self.kv_cache_spec, FullAttentionSpec)')}"
    unchanged(HEAD + INIT.format("UniformTypeKVCacheSpecs") + lines + below, target)


@pytest.mark.parametrize("value", ["kv_cache_spec", "cast(MambaSpec, kv_cache_spec)"])
def test_the_parameter_is_no_other_value(value: str) -> None:
    made = migrate_text(
        f"from typing import cast\n{HEAD}{INIT.format('MambaSpec')}        self.kv_cache_spec = {value}\n"
        "        assert isinstance(self.kv_cache_spec, MambaSpec)\n"
    )
    assert made.report("Mine").spec == "MambaSpec"
    assert "assert" not in made.text()


def below(name: str, base: str, body: str) -> str:
    return f"\n\nclass {name}({base}):\n{body}"


def test_a_wide_child_leaves_its_base_open() -> None:
    """Case `one_wide_child`."""
    mamba = below("First", "Mine", "    kv_cache_spec: MambaSpec\n")
    assert migrate_text(HEAD + "    pass\n" + mamba).report("Mine").spec == "MambaSpec"
    for body in (INIT.format("KVCacheSpec"), "    pass\n", method(SEVERAL[0])):
        unchanged(HEAD + "    pass\n" + mamba + below("Second", "Mine", body), Target.GENERIC)


def test_grandchildren_are_asked() -> None:
    """Case `grandchild_differs`."""
    family = below("Between", "Mine", "    pass\n") + below("First", "Between", "    kv_cache_spec: MambaSpec\n")
    assert migrate_text(HEAD + "    pass\n" + family).report("Mine").spec == "MambaSpec"
    other = below("Second", "Mine", "    kv_cache_spec: AttentionSpec\n")
    unchanged(HEAD + "    pass\n" + family + other, Target.GENERIC)


@BOTH
@pytest.mark.parametrize(
    "hint", ["MambaSpec | None", "Optional[MambaSpec]", "Union[MambaSpec, None]", '"None | MambaSpec"']
)
def test_an_annotation_that_allows_none_stays(hint: str, target: Target) -> None:
    """Cases `annotation_or_none`, `opt_ann`."""
    head = f"from typing import Optional, Union\n{HEAD}    kv_cache_spec: {hint}\n"
    body = method("self.kv_cache_spec = None") + method("assert isinstance(self.kv_cache_spec, MambaSpec)", "more")
    made = migrate_text(head + body, target)
    assert f"    kv_cache_spec: {hint}\n" in made.text()
    assert "assert isinstance(self.kv_cache_spec, MambaSpec)" in made.text()
    assert made.report("Mine").spec == "MambaSpec"


@BOTH
@pytest.mark.parametrize("parameter", ["kv_cache_spec: KVCacheSpec | None = None", "kv_cache_spec: KVCacheSpec = None"])
def test_a_parameter_that_may_be_none_keeps_its_hint(parameter: str, target: Target) -> None:
    """Cases `init_default_none`, `none_default`."""
    init = f"    def __init__(self, {parameter}):\n        assert isinstance(kv_cache_spec, MambaSpec)\n"
    made = migrate_text(f"{HEAD}    kv_cache_spec: MambaSpec\n\n{init}", target)
    assert init in made.text()
    assert "optional-spec" in made.rules(changes=False)
