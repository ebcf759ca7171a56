"""Classes of which a decorator makes fields: an annotation that goes or comes would change what their constructor takes."""

from __future__ import annotations

import pytest
from migrated import migrate_text

from genericbuilders.migration.result import Outcome, Target

HEAD = """{imports}
from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import AttentionSpec, MambaSpec


@{decorator}
class Mine(AttentionMetadataBuilder[int]):
"""
FIELDS = """    kv_cache_spec: MambaSpec
    layer_names: list[str]
"""
INIT = """    def __init__(self, kv_cache_spec: AttentionSpec, layer_names, vllm_config, device):
        assert isinstance(kv_cache_spec, MambaSpec)
        self.sizes = kv_cache_spec.shapes
"""
MAKERS = [
    ("from dataclasses import dataclass", "dataclass"),
    ("import dataclasses as d", "d.dataclass(frozen=True)"),
    ("from dataclasses import dataclass as record", "record"),
    ("from dataclasses import *", "dataclass(eq=False)"),
    ("import attr", "attr.s(auto_attribs=True)"),
    ("from attrs import define", "define"),
    ("from pydantic.dataclasses import dataclass", "dataclass"),
]
makers = pytest.mark.parametrize(("imports", "decorator"), MAKERS)


@makers
def test_a_field_stays(imports: str, decorator: str) -> None:
    made = migrate_text(HEAD.format(imports=imports, decorator=decorator) + FIELDS)
    assert made.base("Mine") == "AttentionMetadataBuilder[int,MambaSpec]"
    assert FIELDS in made.text()
    assert made.rules(changes=False) == {"field-annotation"}


@makers
def test_no_field_comes_and_the_assert_that_narrows_stays(imports: str, decorator: str) -> None:
    made = migrate_text(HEAD.format(imports=imports, decorator=decorator) + INIT, target=Target.WIDENED)
    assert "    kv_cache_spec: MambaSpec\n" not in made.text()
    assert "assert isinstance(kv_cache_spec, MambaSpec)" in made.text()
    assert made.rules(changes=False) == {"field-annotation", "false-hint"}
    assert made.rules(changes=True) == {"init-hint"}


def test_an_annotation_under_another_decorator_goes() -> None:
    made = migrate_text(HEAD.format(imports="from mine import register", decorator="register") + FIELDS)
    assert "kv_cache_spec: MambaSpec" not in made.text()


def test_a_class_that_inherits_from_a_dataclass_has_no_fields_of_its_own() -> None:
    text = HEAD.format(imports="from dataclasses import dataclass", decorator="dataclass") + FIELDS
    made = migrate_text(text + "\n\nclass Below(Mine):\n    kv_cache_spec: MambaSpec\n")
    assert made.text().endswith("class Below(Mine):\n    pass\n")
    assert made.report("Mine").outcome is Outcome.MIGRATED
