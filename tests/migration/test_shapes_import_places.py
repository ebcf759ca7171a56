"""New imports stand where vLLM's base was imported, or at the module's own level above what uses them."""

from __future__ import annotations

import pytest
from migrated import migrate_package, migrate_text

from genericbuilders.migration.result import Outcome, Target

BASE = "from vllm.v1.attention.backend import AttentionMetadataBuilder"
NEW = "from genericbuilders_vllm.base import AttentionMetadataBuilder"
SPECS = "from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, MambaSpec\n"
INIT = """    def __init__(self, kv_cache_spec: MambaSpec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
"""
META = "class Meta: ...\n"
READS = (
    "class Mine(AttentionMetadataBuilder[Meta]):\n    def build(self, a, b) -> Meta: return self.kv_cache_spec.shapes\n"
)
MINE = f"class Mine(AttentionMetadataBuilder[Meta]):\n{INIT}"


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize(
    "head",
    [
        f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vllm.config import VllmConfig\n{BASE}\n",
        f"def f():\n    from vllm.config import VllmConfig\n    return VllmConfig\n{BASE}\n",
    ],
    ids=["tc_first_vllm_import", "fn_first_vllm_import"],
)
def test_first_import_of_vllm_is_not_at_the_top(head: str, target: Target) -> None:
    made = migrate_text(head + META + READS, target)
    assert made.report("Mine").outcome is Outcome.MIGRATED
    assert "\nfrom vllm.v1.kv_cache_interface import MambaSpec\n" in made.text()


def test_dotted_tc_first() -> None:
    head = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import vllm.config\nimport vllm.v1.attention.backend\n"
    made = migrate_text(head + SPECS + META + MINE.replace("(Att", "(vllm.v1.attention.backend.Att"))
    assert made.arguments("Mine") == ("Meta", "MambaSpec")
    assert f"import vllm.v1.attention.backend\n{NEW}\n" in made.text()


def test_semi_import() -> None:
    made = migrate_text(f"import os\nX = 1\nimport sys; {BASE}\n{SPECS}{META}{MINE}")
    assert made.arguments("Mine") == ("Meta", "MambaSpec")
    assert f"import sys; {NEW}\n" in made.text()


def test_star_import_late() -> None:
    made = migrate_text(f"import os\nX = 1\n{BASE.replace('AttentionMetadataBuilder', '*')}\n{SPECS}{META}{MINE}")
    assert made.arguments("Mine") == ("Meta", "MambaSpec")


def test_two_local_imports() -> None:
    block = "".join(f"    {line}\n" for line in f"{BASE}\n{MINE}".splitlines())
    made = migrate_text(
        f"{SPECS}{META}def one():\n{block}    return Mine\ndef two():\n{block}    return Mine\none()\ntwo()\n"
    )
    assert made.text().count(NEW) == 2
    assert BASE not in made.text()


def test_tc_and_local_import() -> None:
    block = "".join(f"    {line}\n" for line in f"{BASE}\n{MINE}".splitlines())
    head = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {BASE}\n"
    made = migrate_text(f"{head}{SPECS}{META}def one():\n{block}    return Mine\none()\n")
    assert made.text().count(NEW) == 2


def test_two_root_names() -> None:
    other = MINE.replace("Mine", "Other").replace("(Att", "(b.Att")
    made = migrate_text(f"{BASE}\nimport vllm.v1.attention.backend as b\n{SPECS}{META}{MINE}{other}")
    assert made.arguments("Mine") == made.arguments("Other") == ("Meta", "MambaSpec")


def test_two_root_aliases() -> None:
    other = MINE.replace("Mine", "Other").replace("(AttentionMetadataBuilder", "(AMB")
    made = migrate_text(f"{BASE}\n{BASE} as AMB\n{SPECS}{META}{MINE}{other}")
    assert made.arguments("Mine") == made.arguments("Other") == ("Meta", "MambaSpec")


def test_second_name_taken() -> None:
    source = f"{BASE}\n{SPECS}{META}class GenericMetadataBuilder: ...\n{MINE}\nKEPT = AttentionMetadataBuilder\n"
    made = migrate_text(source)
    assert made.arguments("Mine") == ("Meta", "MambaSpec")
    assert "class GenericMetadataBuilder: ..." in made.text()


@pytest.mark.parametrize("target", Target)
def test_reexport(target: Target) -> None:
    body = "    kv_cache_spec: FullAttentionSpec\n    def f(self):\n        assert isinstance(self.kv_cache_spec, AttentionSpec)\n"
    made = migrate_package(
        {"a.py": f"{BASE}\n{SPECS}{META}class Mine(AttentionMetadataBuilder[Meta]):\n{body}",
         "b.py": "from mine import a\nX = a.AttentionSpec\n"}, target,
    )  # fmt: skip
    assert "AttentionSpec, FullAttentionSpec" in made.text("a.py")


def test_reexport_base() -> None:
    made = migrate_package(
        {"a.py": f"{BASE}\n{SPECS}{META}{MINE}",
         "b.py": "from mine.a import AttentionMetadataBuilder\nfrom vllm.v1.attention import backend\n"
         "assert AttentionMetadataBuilder is backend.AttentionMetadataBuilder\n"},
    )  # fmt: skip
    assert BASE in made.text("a.py")
    assert made.report("Mine").outcome is Outcome.MIGRATED
