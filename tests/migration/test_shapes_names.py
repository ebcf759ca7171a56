"""A spec is written only where its name is bound for certain; all else is quoted, imported from vLLM, or refused."""

from __future__ import annotations

import pytest
from migrated import migrate_package, migrate_text

from genericbuilders.migration.result import Outcome, Target

HEAD = """from __future__ import annotations
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheSpec


class Meta: ...


"""
INIT = """    def __init__(self, kv_cache_spec: MambaSpec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
"""
MINE = f"class Mine(AttentionMetadataBuilder[Meta]):\n{INIT}"
IMPORT = "from vllm.v1.kv_cache_interface import MambaSpec"


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize(
    "source",
    [
        'S = TypeVar("S", bound=KVCacheSpec)\nclass Mine(AttentionMetadataBuilder[Meta], Generic[S]):\n'
        "    def __init__(self, kv_cache_spec: S, layer_names, vllm_config, device): ...\n",
        "SPECS = (KVCacheSpec, AttentionSpec)\nclass Mine(AttentionMetadataBuilder[Meta]):\n"
        "    def __init__(self, kv_cache_spec, layer_names):\n        assert isinstance(kv_cache_spec, SPECS)\n",
        "class Mine(AttentionMetadataBuilder[Meta]):  # genericbuilders: spec=int\n    pass\n",
        "class Mine(AttentionMetadataBuilder[Meta]):  # genericbuilders: spec=Nonsense\n    pass\n",
    ],
    ids=["meta_typevar_bound", "tuple_alias", "marker_bad_builtin", "marker_bad_unknown"],
)
def test_what_names_no_class_is_refused(source: str, target: Target) -> None:
    made = migrate_text(HEAD + source, target)
    assert made.text() == HEAD + source
    if "genericbuilders: spec" in source:
        assert made.rules(changes=False) == {"spec-unnameable"}
    else:  # what is no class tells nothing
        assert made.rules(changes=False) == ({"spec-unknown"} if target is Target.GENERIC else set())


@pytest.mark.parametrize("target", Target)
def test_spec_below_is_quoted(target: Target) -> None:
    made = migrate_text(
        f"{HEAD}{IMPORT}\n{MINE.replace('MambaSpec', 'MySpec')}\n\nclass MySpec(MambaSpec): ...\n", target
    )
    assert '"MySpec"' in made.text()
    assert made.report("Mine").outcome is Outcome.MIGRATED


@pytest.mark.parametrize(
    "where",
    [
        "{MINE}\n{IMPORT}\n",
        "def other():\n    class Inner: ...\n    {IMPORT}\n    return MambaSpec\n\n\n{MINE}",
        "if not TYPE_CHECKING:\n    pass\nelse:\n    {IMPORT}\n{MINE}",
        "if TYPE_CHECKING and not Any:\n    {IMPORT}\n{MINE}",
        "MYPY = False\nif MYPY:\n    {IMPORT}\n{MINE}",
        "if TYPE_CHECKING:\n    {IMPORT}\n{MINE}",
    ],
    ids=["spec_import_below", "spec_import_in_fn", "not_tc_else", "tc_and", "mypy_false", "type_checking"],
)
def test_vllms_own_is_imported_above_the_class(where: str) -> None:
    made = migrate_text(HEAD + where.format(MINE=MINE, IMPORT=IMPORT))
    assert made.arguments("Mine") == ("Meta", "MambaSpec")
    text = made.text()
    assert text.index(f"\n{IMPORT}") < text.index("class Mine")


def test_bound_on_every_path_is_bound() -> None:
    both = f"if KVCacheSpec:\n    {IMPORT}\nelse:\n    from vllm.old import MambaSpec\n"
    made = migrate_text(f"{HEAD}{both}{MINE}")
    assert made.arguments("Mine") == ("Meta", "MambaSpec")
    assert both in made.text()


@pytest.mark.parametrize("target", Target)
def test_class_body_import(target: Target) -> None:
    body = "    kv_cache_spec: 'NS.MambaSpec'\n    def build(self, a, b) -> Meta: ...\n"
    nested = f"    {IMPORT}\n    class Mine(AttentionMetadataBuilder[Meta]):\n" + "".join(
        f"    {x}\n" for x in body.splitlines()
    )
    reads = "    class Other(AttentionMetadataBuilder[Meta]):\n        def build(self, a, b): return self.kv_cache_spec.shapes\n"
    made = migrate_text(f"{HEAD.replace('from __future__ import annotations', '')}class NS:\n{nested}{reads}", target)
    assert made.report("NS.Other").outcome is Outcome.MIGRATED


@pytest.mark.parametrize("module", ["mine.specs", "heavy_not_installed"])
def test_what_checkers_alone_import_from_elsewhere_is_quoted(module: str) -> None:
    """Cases cyclic_typechecking and not_installed_tc."""
    source = HEAD + f"if TYPE_CHECKING:\n    from {module} import MySpec\n{MINE.replace('MambaSpec', 'MySpec')}"
    made = migrate_package(
        {
            "attention.py": source,
            "specs.py": f"{IMPORT}\nfrom mine.attention import Mine\nclass MySpec(MambaSpec): ...\n",
        }
    )
    assert 'class Mine(AttentionMetadataBuilder[Meta, "MySpec"])' in made.text()
    assert f"if TYPE_CHECKING:\n    from {module} import MySpec" in made.text()


def test_union_of_typing() -> None:
    made = migrate_text(
        f"{HEAD}from typing import Union\n{IMPORT}\n" + MINE.replace(": MambaSpec", ": Union[MambaSpec, AttentionSpec]")
    )
    assert "[Meta, MambaSpec | AttentionSpec]" in made.text()


def test_metadata_of_a_nested_class() -> None:
    """Case nested_meta."""
    made = migrate_text(
        f"{HEAD}{IMPORT}\nclass Mine(AttentionMetadataBuilder):\n    class Inner: ...\n    kv_cache_spec: MambaSpec\n"
        "    def build(self, a, b) -> Inner: return self.Inner()\n"
    )
    assert made.base("Mine") == "AttentionMetadataBuilder[Any,MambaSpec]"
    assert "metadata-unknown" in made.rules(changes=False)
