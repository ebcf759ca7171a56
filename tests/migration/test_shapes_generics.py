"""Type parameters for specs, hints of back ends, annotations that are read, and what checkers would forbid elsewhere."""

from __future__ import annotations

import pytest
from migrated import migrate_package, migrate_text

from genericbuilders.migration.result import Outcome, Target

HEAD = """from typing import Generic, TypeVar
from vllm.v1.attention.backend import AttentionBackend, AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, KVCacheSpec, MambaSpec
M = TypeVar("M")
T = TypeVar("T")
class Meta: ...
class Mix(Generic[T]): ...
"""
BUILD = "    def build(self, common_prefix_len, common_attn_metadata, fast_build=False) -> Meta: ...\n"
INIT = "    def __init__(self, kv_cache_spec: {}, layer_names, vllm_config, device): ...\n"
FIRST = "class First(Mid{}):\n    kv_cache_spec: MambaSpec\n"
SECOND = "class Second(Mid{}):\n    kv_cache_spec: AttentionSpec\n"


@pytest.mark.parametrize(
    ("bases", "first", "second"),
    [
        ("AttentionMetadataBuilder[M], Generic[M]", "[Meta]", "[Meta]"),
        ("AttentionMetadataBuilder[M], Generic[M, T]", "[Meta, int]", "[Meta, str]"),
        ("AttentionMetadataBuilder[M], Mix[T]", "[Meta, int]", "[Meta, str]"),
        ("AttentionMetadataBuilder[M]", "", "[Meta]"),
    ],
    ids=["explicit_generic", "two_param_generic_both", "two_param_mid", "bare_child_of_generic_mid"],
)
def test_no_parameter_can_be_added(bases: str, first: str, second: str) -> None:
    source = f"{HEAD}class Mid({bases}):\n    pass\n{FIRST.format(first)}{SECOND.format(second)}"
    made = migrate_text(source)
    assert made.text() == source
    assert made.report("Mid").outcome is Outcome.REFUSED
    assert "spec-parameter" in made.rules(changes=False)


def test_spec_t_taken() -> None:
    source = f'{HEAD}SpecT = "mine"\nclass Mid(AttentionMetadataBuilder[M]): ...\n{FIRST}{SECOND}'.replace(
        "{}", "[Meta]"
    )
    made = migrate_text(source)
    assert made.arguments("First") == ("Meta", "MambaSpec")
    assert 'SpecT = "mine"' in made.text()


def test_longname_typevar() -> None:
    made = migrate_package(
        {
            "types.py": 'from typing import TypeVar\nMetaT = TypeVar("MetaT")\n',
            "mid.py": "from vllm.v1.attention.backend import AttentionMetadataBuilder\nfrom mine.types import MetaT\n"
            "class Mid(AttentionMetadataBuilder[MetaT]): ...\n",
            "attention.py": f"{HEAD}from mine.mid import Mid\n{FIRST}{SECOND}".replace("{}", "[Meta]"),
        }
    )
    assert made.arguments("First") == ("Meta", "MambaSpec")
    assert made.arguments("Second") == ("Meta", "AttentionSpec")


def test_an_intermediate_without_a_parameter_passes_none_on() -> None:
    between = "class Between(Mid[M]): ...\nclass Third(Between[Meta]):\n    kv_cache_spec: FullAttentionSpec\n"
    made = migrate_text(
        f"{HEAD}class Mid(AttentionMetadataBuilder[M]): ...\n{FIRST}{SECOND}{between}".replace("{}", "[Meta]")
    )
    assert made.arguments("Third") == ("Meta",)
    assert "kv_cache_spec: FullAttentionSpec" in made.text()


GETTER = "class {}({}):\n{}    @staticmethod\n    def get_builder_cls(): \n        {}return {}\n"
TWO = "".join(
    f"class {name}(AttentionMetadataBuilder[Meta]):\n{INIT.format(spec)}"
    for name, spec in (("A", "MambaSpec"), ("B", "AttentionSpec"))
)


@pytest.mark.parametrize(
    "getters",
    [
        GETTER.format("BeA", "AttentionBackend", "    type = 'mine'\n", "", "A"),
        GETTER.format("BeA", "AttentionBackend", "", "from mine.other import A; ", "A"),
        GETTER.format("BeA", "AttentionBackend", "", "", "A") + GETTER.format("BeB", "BeA", "", "", "B"),
    ],
    ids=["getter_type_attr", "lazy", "getter_over"],
)
def test_getter_is_left(getters: str) -> None:
    made = migrate_text(HEAD + TWO + getters)
    assert 'type["A"]' not in made.text()
    assert "builder-getter" in made.rules(changes=False)


@pytest.mark.parametrize("reads", ["REG = {Mine.__annotations__['kv_cache_spec']: Mine}\n", ""])
def test_annotations_that_are_read_stay(reads: str) -> None:
    """Cases annotations_at_runtime and init_subclass."""
    base = "" if reads else "class Reg:\n    def __init_subclass__(cls): cls.__annotations__['kv_cache_spec']\n"
    bases = "AttentionMetadataBuilder[Meta]" + (", Reg" if base else "")
    made = migrate_text(f"{HEAD}{base}class Mine({bases}):\n    kv_cache_spec: MambaSpec\n{BUILD}{reads}")
    assert "    kv_cache_spec: MambaSpec\n" in made.text()
    assert "field-annotation" in made.rules(changes=False)
    assert made.report("Mine").outcome is Outcome.MIGRATED


CHECKED = f"class Mine(AttentionMetadataBuilder[Meta]):\n{INIT.format('KVCacheSpec')}".replace(
    "...", "\n        assert isinstance(kv_cache_spec, MambaSpec)"
)


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize(
    ("wide", "rule"),
    [
        ("def make(spec: KVCacheSpec):\n    return Mine(spec, [], None, None)\n", "wide-value"),
        ("    def swap(self, spec: KVCacheSpec):\n        self.kv_cache_spec = spec\n", "several-specs"),
    ],
    ids=["caller_wide", "swap"],
)
def test_wide_values(wide: str, rule: str, target: Target) -> None:
    made = migrate_text(HEAD + CHECKED + wide, target)
    assert made.text() == HEAD + CHECKED + wide
    assert made.rules(changes=False) == {rule}


@pytest.mark.parametrize("target", Target)
def test_typed_bare_two(target: Target) -> None:
    sub = "class Sub(Base):\n    kv_cache_spec: FullAttentionSpec\n"
    source = f"{HEAD}class Base(AttentionMetadataBuilder[Meta]):\n{INIT.format('AttentionSpec')}{sub}"
    made = migrate_text(source, target)
    assert made.text() == source
    assert "narrowed-below" in made.rules(changes=False)


def test_hook_reads_ok() -> None:
    hook = "    @classmethod\n    def get_cudagraph_support(cls, vllm_config, kv_cache_spec: MambaSpec):\n        return {}\n"
    mine = f"{HEAD}class Mine(AttentionMetadataBuilder[Meta]):\n    kv_cache_spec: MambaSpec\n"
    made = migrate_text(mine + hook.format("cls.helper(kv_cache_spec)"), Target.WIDENED)
    assert not made.results["attention.py"].changed
    assert "hook-hint" in made.rules(changes=False)
    made = migrate_text(mine + hook.format("kv_cache_spec.block_size"), Target.WIDENED)
    assert "kv_cache_spec: KVCacheSpec" in made.text()
