"""How builders derive from their base: every shape that was found, with what it becomes."""

from __future__ import annotations

import pytest
from migrated import migrate_package, migrate_text

from genericbuilders.migration.result import Outcome, Target

HEAD = """from typing import Any, TypeVar

from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, KVCacheSpec, MambaSpec


class Meta:
    pass


"""
BODY = """
    def __init__(self, kv_cache_spec: MambaSpec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False) -> Meta:
        return Meta()
"""


def test_one_parameter() -> None:
    made = migrate_text(f"{HEAD}class Mine(AttentionMetadataBuilder[Meta]):{BODY}")
    assert made.base("Mine") == "AttentionMetadataBuilder[Meta,MambaSpec]"
    assert made.arguments("Mine") == ("Meta", "MambaSpec")
    assert made.report("Mine").outcome is Outcome.MIGRATED
    assert made.report("Mine").spec == "MambaSpec"
    assert "__init__" in str(made.report("Mine").evidence)


def test_one_parameter_keeps_every_other_byte() -> None:
    source = (
        f"{HEAD}class Mine(AttentionMetadataBuilder[Meta]):  # ours\n    # Kept.\n    x = {{'a' : 1,}}   # odd\n{BODY}"
    )
    before, after = source.splitlines(), migrate_text(source).text().splitlines()
    changed = [line for line in after if line not in before]
    assert [line for line in changed if "import" not in line] == [
        "class Mine(AttentionMetadataBuilder[Meta, MambaSpec]):  # ours"
    ]
    assert [line for line in before if line not in after and "import" not in line] == [
        "class Mine(AttentionMetadataBuilder[Meta]):  # ours"
    ]


def test_no_parameter() -> None:
    made = migrate_text(f"{HEAD}class Mine(AttentionMetadataBuilder):{BODY}")
    assert made.arguments("Mine")[1] == "MambaSpec"
    assert made.arguments("Mine")[0] in ("Meta", "Any")


def test_any() -> None:
    made = migrate_text(f"{HEAD}class Mine(AttentionMetadataBuilder[Any]):{BODY}")
    assert made.base("Mine") == "AttentionMetadataBuilder[Any,MambaSpec]"
    assert made.arguments("Mine") == ("Any", "MambaSpec")


@pytest.mark.parametrize("variable", ['M = TypeVar("M")', 'M = TypeVar("M", bound=Meta)'])
def test_type_variable(variable: str) -> None:
    made = migrate_text(
        f"{HEAD}{variable}\n\n\nclass Middle(AttentionMetadataBuilder[M]):{BODY}\n\n"
        "class Mine(Middle[Meta]):\n    pass\n"
    )
    assert made.arguments("Middle") == ("M", "MambaSpec")
    assert made.base("Mine") == "Middle[Meta]", "only the root of a chain gains the spec"
    assert made.arguments("Mine") == ("Meta",)
    assert made.report("Mine").outcome in (Outcome.UNCHANGED, Outcome.MIGRATED)


def test_generic_intermediate_whose_subclasses_differ() -> None:
    made = migrate_text(
        f"{HEAD}M = TypeVar('M')\n\n\nclass Middle(AttentionMetadataBuilder[M]):\n    pass\n\n\n"
        "class First(Middle[Meta]):\n    kv_cache_spec: MambaSpec\n\n\n"
        "class Second(Middle[Meta]):\n"
        "    def __init__(self, kv_cache_spec: FullAttentionSpec, layer_names, vllm_config, device):\n"
        "        super().__init__(kv_cache_spec, layer_names, vllm_config, device)\n\n\n"
        "class Third(Middle[Meta]):\n    pass\n"
    )
    assert made.arguments("Middle") == ("M", "SpecT")
    assert made.arguments("First") == ("Meta", "MambaSpec")
    assert "kv_cache_spec: MambaSpec" not in made.text()
    assert made.arguments("Second") == ("Meta", "FullAttentionSpec")
    # A base without an argument for the spec has its default.
    assert made.arguments("Third") == ("Meta", "KVCacheSpec")


def test_concrete_intermediate_whose_subclasses_differ() -> None:
    made = migrate_text(
        f"{HEAD}class Middle(AttentionMetadataBuilder[Meta]):\n    pass\n\n\n"
        "class First(Middle):\n    kv_cache_spec: MambaSpec\n\n\n"
        "class Second(Middle):\n    kv_cache_spec: FullAttentionSpec\n"
    )
    assert made.arguments("Middle") == ("Meta", "SpecT")
    assert made.arguments("First") == ("MambaSpec",)
    assert made.arguments("Second") == ("FullAttentionSpec",)
    assert "kv_cache_spec:" not in made.text()


def test_a_subclass_that_is_narrower_than_its_base() -> None:
    narrow = "class Narrow(Middle):\n    kv_cache_spec: FullAttentionSpec\n"
    made = migrate_text(
        f"{HEAD}class Middle(AttentionMetadataBuilder[Meta]):\n    kv_cache_spec: AttentionSpec\n\n\n{narrow}"
    )
    assert made.arguments("Middle") == ("Meta", "AttentionSpec")
    assert made.text().endswith(narrow), "its base gives it the wider one, so that it goes on to say so itself"
    assert made.report("Narrow").spec == "FullAttentionSpec"
    assert made.report("Narrow").findings


def test_chain_over_files() -> None:
    made = migrate_package(
        {
            "first.py": f"{HEAD}class First(AttentionMetadataBuilder[Meta]):{BODY}",
            "second.py": "from mine.first import First\n\n\nclass Second(First):\n    pass\n",
            "third.py": "from . import second as s\n\n\nclass Third(s.Second):\n    pass\n",
        }
    )
    assert made.base("First", name="first.py") == "AttentionMetadataBuilder[Meta,MambaSpec]"
    assert made.text("second.py") == made.results["second.py"].before
    assert made.text("third.py") == made.results["third.py"].before
    assert made.report("Third").spec in ("MambaSpec", None)
    assert made.report("Third").outcome is Outcome.UNCHANGED


@pytest.mark.parametrize("order", ["Mixin, AttentionMetadataBuilder[Meta]", "AttentionMetadataBuilder[Meta], Mixin"])
def test_mixins(order: str) -> None:
    made = migrate_text(f"{HEAD}class Mixin:\n    pass\n\n\nclass Mine({order}):{BODY}")
    index = 1 if order.startswith("Mixin") else 0
    assert made.base("Mine", index) == "AttentionMetadataBuilder[Meta,MambaSpec]"
    assert made.base("Mine", 1 - index) == "Mixin"


def test_aliased_import() -> None:
    made = migrate_text(
        f"{HEAD.replace('import AttentionMetadataBuilder', 'import AttentionMetadataBuilder as Base')}"
        f"class Mine(Base[Meta]):{BODY}"
    )
    assert made.arguments("Mine") == ("Meta", "MambaSpec")


def test_module_import() -> None:
    head = HEAD.replace(
        "from vllm.v1.attention.backend import AttentionMetadataBuilder", "from vllm.v1.attention import backend"
    )
    made = migrate_text(f"{head}class Mine(backend.AttentionMetadataBuilder[Meta]):{BODY}")
    assert made.arguments("Mine") == ("Meta", "MambaSpec")
    dotted = HEAD.replace(
        "from vllm.v1.attention.backend import AttentionMetadataBuilder", "import vllm.v1.attention.backend"
    )
    made = migrate_text(f"{dotted}class Mine(vllm.v1.attention.backend.AttentionMetadataBuilder[Meta]):{BODY}")
    assert made.arguments("Mine") == ("Meta", "MambaSpec")


def test_alias_by_assignment() -> None:
    made = migrate_text(f"{HEAD}Base = AttentionMetadataBuilder\n\n\nclass Mine(Base[Meta]):{BODY}")
    assert made.report("Mine").outcome in (Outcome.MIGRATED, Outcome.REFUSED)
    if made.report("Mine").outcome is Outcome.MIGRATED:
        assert made.arguments("Mine") == ("Meta", "MambaSpec")


def test_star_import() -> None:
    head = HEAD.replace("import AttentionMetadataBuilder", "import *")
    made = migrate_text(f"{head}class Mine(AttentionMetadataBuilder[Meta]):{BODY}")
    assert made.arguments("Mine") == ("Meta", "MambaSpec")


def test_re_exported_base() -> None:
    made = migrate_package(
        {
            "compat.py": "from vllm.v1.attention.backend import AttentionMetadataBuilder\n\n__all__ = ['AttentionMetadataBuilder']\n",
            "attention.py": f"{HEAD.replace('from vllm.v1.attention.backend', 'from .compat')}class Mine(AttentionMetadataBuilder[Meta]):{BODY}",
        }
    )
    assert made.arguments("Mine") == ("Meta", "MambaSpec")
    assert "import AttentionMetadataBuilder" in made.text("compat.py")


def test_older_home() -> None:
    made = migrate_text(
        f"{HEAD.replace('attention.backend import', 'attention.backends.utils import')}class Mine(AttentionMetadataBuilder[Meta]):{BODY}"
    )
    assert made.arguments("Mine") == ("Meta", "MambaSpec")
    assert "backends.utils" not in made.text()


def test_the_name_alone_is_no_builder() -> None:
    source = (
        HEAD.replace("vllm.v1.attention.backend", "other.library")
        + f"class Mine(AttentionMetadataBuilder[Meta]):{BODY}"
    )
    for target in Target:
        made = migrate_text(source, target)
        assert made.text() == source


def test_a_class_of_the_files_own_is_no_builder() -> None:
    source = "class AttentionMetadataBuilder:\n    pass\n\n\nclass Mine(AttentionMetadataBuilder):\n    pass\n"
    for target in Target:
        assert migrate_text(source, target).text() == source


def test_nested_in_function() -> None:
    made = migrate_text(
        f"{HEAD}def make():\n    class Inner(AttentionMetadataBuilder[Meta]):\n        kv_cache_spec: MambaSpec\n\n"
        "        def build(self, common_prefix_len, common_attn_metadata, fast_build=False):\n"
        "            return Meta()\n\n    return Inner\n"
    )
    assert made.base("Inner") == "AttentionMetadataBuilder[Meta,MambaSpec]"
    assert made.report("make.<locals>.Inner").outcome is Outcome.MIGRATED
    assert "kv_cache_spec: MambaSpec" not in made.text()


def test_quoted_metadata() -> None:
    made = migrate_text(f'{HEAD}class Mine(AttentionMetadataBuilder["Later"]):{BODY}\n\nclass Later:\n    pass\n')
    assert made.arguments("Mine") == ("Later", "MambaSpec")


def test_already_generic() -> None:
    for module, base in (
        ("genericbuilders.builder", "AttentionMetadataBuilder"),
        ("genericbuilders_vllm.base", "AttentionMetadataBuilder"),
        ("genericbuilders.backends.paged", "PagedMetadataBuilder"),
        ("genericbuilders.backends.paged", "PlainCacheBuilder"),
    ):
        source = (
            f"from {module} import {base}\nfrom genericbuilders.specs import MambaSpec\n\n\n"
            f"class Meta:\n    pass\n\n\nclass Mine({base}[Meta, MambaSpec]):{BODY}"
        )
        made = migrate_text(source)
        assert made.text() == source
        assert made.report("Mine").outcome is Outcome.UNCHANGED
        assert made.report("Mine").spec == "MambaSpec"


def test_two_builders_in_one_file() -> None:
    made = migrate_text(
        f"{HEAD}class Mine(AttentionMetadataBuilder[Meta]):{BODY}\n\n"
        f"class Other(AttentionMetadataBuilder[Meta]):{BODY.replace('MambaSpec', 'AttentionSpec')}"
    )
    assert made.arguments("Mine") == ("Meta", "MambaSpec")
    assert made.arguments("Other") == ("Meta", "AttentionSpec")
    assert made.text().count("import AttentionMetadataBuilder") == 1
