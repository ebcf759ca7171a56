"""What the new base makes needless, and what imports become."""

from __future__ import annotations

import ast
import re

import pytest
from migrated import Migration, migrate_package, migrate_text

from genericbuilders.migration.result import Outcome, Target

HEAD = """from typing import cast

from vllm.v1.attention.backend import AttentionBackend, AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec


class Meta:
    pass


class Mine(AttentionMetadataBuilder[Meta]):
"""
INIT = """    def __init__(self, kv_cache_spec: AttentionSpec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
"""


def migrate_lines(*lines: str, head: str = HEAD) -> Migration:
    return migrate_text(head + INIT + "".join(f"        {line}\n" for line in lines))


def test_annotation_goes() -> None:
    made = migrate_text(f"{HEAD}    kv_cache_spec: AttentionSpec\n\n{INIT}")
    assert "    kv_cache_spec: AttentionSpec\n" not in made.text()
    assert "class Mine(AttentionMetadataBuilder[Meta, AttentionSpec]):\n    def __init__" in made.text()


def test_annotation_alone_leaves_a_body() -> None:
    made = migrate_text(f"{HEAD}    kv_cache_spec: AttentionSpec\n")
    assert made.text().endswith("    pass\n")
    assert made.arguments("Mine") == ("Meta", "AttentionSpec")


def test_annotation_with_a_value_stays() -> None:
    made = migrate_text(f"{HEAD}    kv_cache_spec: AttentionSpec = None\n\n{INIT}")
    assert "kv_cache_spec: AttentionSpec = None" in made.text()


def test_comments_of_what_goes_are_kept() -> None:
    made = migrate_text(
        f"{HEAD}    # About the cache.\n    kv_cache_spec: AttentionSpec  # said twice\n    x = 1\n\n{INIT}"
        "        # For the checker.\n        assert isinstance(kv_cache_spec, AttentionSpec)\n        self.x = 2\n"
    )
    for comment in ("# About the cache.", "# said twice", "# For the checker."):
        assert comment in made.text()


@pytest.mark.parametrize(
    "line",
    [
        "assert isinstance(kv_cache_spec, AttentionSpec)",
        "assert isinstance(self.kv_cache_spec, AttentionSpec)",
        "assert isinstance(self.kv_cache_spec, (AttentionSpec, MambaSpec))",
        "assert isinstance(self.kv_cache_spec, AttentionSpec | MambaSpec)",
        "assert isinstance(self.kv_cache_spec, KVCacheSpec)",
        'assert isinstance(kv_cache_spec, AttentionSpec), "attention only"',
        'assert isinstance(kv_cache_spec, AttentionSpec), f"not {kv_cache_spec}"',
    ],
)
def test_needless_assert_goes(line: str) -> None:
    made = migrate_lines(line, "self.x = 1")
    assert "assert" not in made.text()
    assert "self.x = 1" in made.text()


@pytest.mark.parametrize(
    "line",
    [
        "assert isinstance(kv_cache_spec, SlidingWindowSpec)",
        "assert isinstance(self.kv_cache_spec, SlidingWindowSpec)",
        "assert isinstance(self.kv_cache_spec, (SlidingWindowSpec, MambaSpec))",
        "assert isinstance(self.kv_cache_spec.block_size, int)",
        "assert isinstance(self.other.kv_cache_spec, AttentionSpec)",
        "assert isinstance(layer_names, list)",
        "assert not isinstance(kv_cache_spec, MambaSpec)",
        "assert isinstance(self.kv_cache_spec, AttentionSpec) and vllm_config",
        "assert isinstance(kv_cache_spec, AttentionSpec) or vllm_config",
        "assert isinstance(kv_cache_spec := device.spec, AttentionSpec)",
        "assert isinstance(device.kv_cache_spec(), AttentionSpec)",
        "assert kv_cache_spec",
    ],
)
def test_other_asserts_stay(line: str) -> None:
    assert line in migrate_lines(line).text()


def test_an_assert_on_a_name_that_was_bound_anew_stays() -> None:
    made = migrate_lines("kv_cache_spec = vllm_config.spec", "assert isinstance(kv_cache_spec, AttentionSpec)")
    assert "assert isinstance(kv_cache_spec, AttentionSpec)" in made.text()


def test_an_assert_in_a_method_whose_parameter_has_no_hint_stays() -> None:
    line = "        assert isinstance(kv_cache_spec, AttentionSpec)\n"
    made = migrate_text(
        f"{HEAD}{INIT}\n    def other(self, kv_cache_spec):\n{line}        return kv_cache_spec.head_size\n"
    )
    assert line in made.text()


def test_an_assert_outside_the_class_stays() -> None:
    line = "    assert isinstance(kv_cache_spec, AttentionSpec)\n"
    made = migrate_text(f"{HEAD}{INIT}\n\ndef other(kv_cache_spec):\n{line}")
    assert line in made.text()


def test_an_assert_that_is_all_of_a_block_leaves_a_body() -> None:
    made = migrate_lines("if device:", "    assert isinstance(self.kv_cache_spec, AttentionSpec)")
    assert "assert" not in made.text()


def test_one_of_two_statements_on_a_line() -> None:
    made = migrate_lines("assert isinstance(self.kv_cache_spec, AttentionSpec); self.x = 1")
    assert "assert" not in made.text()
    assert "        self.x = 1\n" in made.text()


@pytest.mark.parametrize(
    "call", ["cast(AttentionSpec, {})", 'cast("AttentionSpec", {})', "cast(typ=AttentionSpec, val={})"]
)
@pytest.mark.parametrize("spec", ["kv_cache_spec", "self.kv_cache_spec"])
def test_needless_cast_goes(call: str, spec: str) -> None:
    made = migrate_lines(f"self.x = {call.format(spec)}.head_size")
    if "typ=" in call and "cast(" in made.text():
        pytest.skip("nobody writes it so")
    assert f"self.x = {spec}.head_size" in made.text()
    assert "cast" not in made.text(), "its import goes with it"
    assert "from typing" not in made.text()


def test_the_import_of_cast_stays_where_it_is_used() -> None:
    made = migrate_lines("self.x = cast(AttentionSpec, self.kv_cache_spec)", "self.y = cast(int, device)")
    assert "from typing import cast\n" in made.text()
    assert "self.x = self.kv_cache_spec\n" in made.text()


def test_a_narrower_cast_stays() -> None:
    assert (
        "cast(SlidingWindowSpec, self.kv_cache_spec)"
        in migrate_lines("x = cast(SlidingWindowSpec, self.kv_cache_spec)").text()
    )


def test_a_hint_of_cls_goes_and_the_hook_keeps_what_vllm_passes() -> None:
    made = migrate_text(
        f"{HEAD}{INIT}\n    @classmethod\n    def get_cudagraph_support(\n"
        '        cls: type["AttentionMetadataBuilder"],\n        vllm_config: object,\n        kv_cache_spec: KVCacheSpec,\n'
        "    ) -> int:\n        return 0\n"
    )
    # The new base is a builder of vLLM's, whose hook is given any spec.
    assert "kv_cache_spec: KVCacheSpec,\n    ) -> int:" in made.text()
    assert "        cls,\n        vllm_config: object,\n" in made.text()


def test_cls_of_the_class_itself() -> None:
    made = migrate_text(
        f"{HEAD}{INIT}\n    @classmethod\n"
        '    def get_cudagraph_support(cls: type["Mine"], vllm_config: object, kv_cache_spec: AttentionSpec) -> int:\n        return 0\n'
    )
    assert "(cls, vllm_config" in made.text() or 'cls: type["Mine"]' in made.text()


@pytest.mark.parametrize("decorator", ["staticmethod", "classmethod"])
@pytest.mark.parametrize("returns", ["", ' -> type["AttentionMetadataBuilder"]', " -> type[AttentionMetadataBuilder]"])
def test_get_builder_cls(decorator: str, returns: str) -> None:
    argument = "cls" if decorator == "classmethod" else ""
    made = migrate_text(
        f"{HEAD}{INIT}\n\nclass Backend(AttentionBackend):\n    @{decorator}\n    def get_builder_cls({argument}){returns}:\n        return Mine\n"
    )
    annotation = returns_of(made.text(), "get_builder_cls")
    assert annotation == "type[Mine]"


def test_get_builder_cls_before_the_builder() -> None:
    source = HEAD.replace(
        "class Meta",
        "class Backend(AttentionBackend):\n    @staticmethod\n    def get_builder_cls():\n        return Mine\n\n\nclass Meta",
    )
    made = migrate_text(source + INIT)
    assert returns_of(made.text(), "get_builder_cls") == "type[Mine]"
    assert made.arguments("Mine") == ("Meta", "AttentionSpec")


def test_get_builder_cls_with_a_choice_is_left() -> None:
    getter = "    @staticmethod\n    def get_builder_cls():\n        if HERE:\n            return Mine\n        return Other\n"
    source = f"{HEAD}{INIT}\n\nclass Other(Mine):\n    pass\n\n\nclass Backend(AttentionBackend):\n{getter}"
    made = migrate_text(source)
    assert getter in made.text()
    assert any(
        "get_builder_cls" in each.message or "builder" in each.rule for each in made.findings() if not each.changes
    )


def test_get_builder_cls_that_is_specific_is_left() -> None:
    source = f'{HEAD}{INIT}\n\nclass Backend(AttentionBackend):\n    @staticmethod\n    def get_builder_cls() -> "type[Mine]":\n        return Mine\n'
    assert 'def get_builder_cls() -> "type[Mine]":' in migrate_text(source).text()


@pytest.mark.parametrize(
    "text", ["type[AttentionMetadataBuilder]", 'type["AttentionMetadataBuilder"]', '"type[AttentionMetadataBuilder]"']
)
def test_bare_types_elsewhere_go_on_to_mean_vllms_base(text: str) -> None:
    runner = f"class Runner:\n    def bind(self, builder: {text}, other: int) -> {text}:\n        return builder\n"
    head = "from vllm.v1.attention.backend import AttentionMetadataBuilder\n\n\n"
    assert migrate_text(head + runner).text() == head + runner
    # Beside a builder that is migrated, the name still has to be there, and be vLLM's.
    made = migrate_text(f"{HEAD}{INIT}\n\n{runner}")
    assert runner in made.text()
    assert re.search(
        r"^from vllm.v1.attention.backend import .*\bAttentionMetadataBuilder\b", made.text(), re.MULTILINE
    )
    assert made.arguments("Mine") == ("Meta", "AttentionSpec")


def test_tests_against_vllms_base_stay() -> None:
    line = "\n\nassert issubclass(Mine, AttentionMetadataBuilder)\n"
    made = migrate_text(f"{HEAD}{INIT}{line}")
    assert made.text().endswith(line)
    assert re.search(
        r"^from vllm.v1.attention.backend import .*\bAttentionMetadataBuilder\b", made.text(), re.MULTILINE
    )


def test_files_without_builders_keep_every_byte() -> None:
    source = "from vllm.v1.kv_cache_interface import AttentionSpec\n\n\ndef f(kv_cache_spec):\n    assert isinstance(kv_cache_spec, AttentionSpec)\n"
    for target in Target:
        assert migrate_text(source, target).text() == source


def test_line_endings_and_quotes_stay() -> None:
    source = (HEAD + INIT + "        assert isinstance(kv_cache_spec, AttentionSpec)\n        self.x = 'a'\n").replace(
        "\n", "\r\n"
    )
    after = migrate_text(source).text()
    assert "\n" not in after.replace("\r\n", "")
    assert "self.x = 'a'\r\n" in after


def test_tabs_and_a_missing_last_newline_stay() -> None:
    source = HEAD + "\tdef __init__(self, kv_cache_spec: AttentionSpec, *rest):\n\t\tpass"
    after = migrate_text(source).text()
    assert after.endswith("\tdef __init__(self, kv_cache_spec: AttentionSpec, *rest):\n\t\tpass")


def test_future_import_and_docstring_stay_first() -> None:
    made = migrate_text(f'#!/usr/bin/env python\n"""About."""\n\nfrom __future__ import annotations\n\n{HEAD}{INIT}')
    assert made.text().startswith('#!/usr/bin/env python\n"""About."""\n\nfrom __future__ import annotations\n\n')


def test_other_names_of_an_import_stay() -> None:
    head = HEAD.replace(
        "import AttentionBackend, AttentionMetadataBuilder",
        "import (\n    AttentionBackend,  # kept\n    AttentionMetadataBuilder,\n    Zebra,\n)",
    )
    text = migrate_text(head + INIT).text()
    assert "from vllm.v1.attention.backend import (\n    AttentionBackend,  # kept\n    Zebra,\n)\n" in text


def test_last_name_of_an_import() -> None:
    head = HEAD.replace(
        "import AttentionBackend, AttentionMetadataBuilder",
        "import (\n    AttentionBackend,\n    AttentionMetadataBuilder,\n)",
    )
    text = migrate_text(head + INIT).text()
    assert "from vllm.v1.attention.backend import (\n    AttentionBackend,\n)\n" in text


@pytest.mark.parametrize("future", ["from __future__ import annotations\n\n", ""])
def test_a_spec_for_checkers_only_is_there_at_run_time(future: str) -> None:
    head = (
        f"{future}from typing import TYPE_CHECKING\n\nfrom vllm.v1.attention.backend import AttentionMetadataBuilder\n\n"
        "if TYPE_CHECKING:\n    from vllm.config import VllmConfig\n    from vllm.v1.kv_cache_interface import AttentionSpec\n\n\n"
        "class Meta:\n    pass\n\n\nclass Mine(AttentionMetadataBuilder[Meta]):\n"
    )
    made = migrate_text(head + INIT.replace("AttentionSpec", '"AttentionSpec"'))
    assert made.arguments("Mine") == ("Meta", "AttentionSpec")
    assert "    from vllm.config import VllmConfig\n" in made.text()
    assert any("TYPE_CHECKING" in each.message for each in made.findings())


def test_a_block_for_checkers_only_that_becomes_empty() -> None:
    head = (
        "from typing import TYPE_CHECKING\n\nfrom vllm.v1.attention.backend import AttentionMetadataBuilder\n\n"
        "if TYPE_CHECKING:\n    from vllm.v1.kv_cache_interface import AttentionSpec\n\n\n"
        "class Meta:\n    pass\n\n\nclass Mine(AttentionMetadataBuilder[Meta]):\n"
    )
    made = migrate_text(head + INIT.replace("AttentionSpec", '"AttentionSpec"'))
    assert made.arguments("Mine") == ("Meta", "AttentionSpec")


def test_a_name_that_others_import_from_here_stays() -> None:
    made = migrate_package(
        {
            "attention.py": HEAD + INIT + "        self.x = cast(AttentionSpec, self.kv_cache_spec)\n",
            "user.py": "from .attention import cast\n\nprint(cast(int, 1))\n",
        }
    )
    assert "import cast" in made.text()


def test_layers_without_a_handle_are_left_with_a_reason() -> None:
    source = (
        f"{HEAD}{INIT}\n\nclass Layer:\n    def forward(self, forward_context):\n"
        "        attn_metadata = forward_context.attn_metadata[self.prefix]\n"
        "        assert isinstance(attn_metadata, Meta)\n        return attn_metadata\n"
    )
    made = migrate_text(source)
    assert "        assert isinstance(attn_metadata, Meta)\n" in made.text()
    left = [
        each
        for each in made.findings()
        if not each.changes and each.line == source[: source.index("assert isinstance(attn")].count("\n") + 1
    ]
    assert len(left) == 1
    assert "AttentionLayer" in left[0].message


LAYER = """from genericbuilders.adapter import AttentionLayer, Step


class Meta:
    pass


class Other:
    pass


class Layer:
    def __init__(self, handle: AttentionLayer[{}]) -> None:
        self.handle = handle

    def forward(self, step: Step, name: str) -> Meta:
        attn_metadata = {}
        assert isinstance(attn_metadata, Meta)
        return attn_metadata
"""


def test_layers_with_a_typed_look_up() -> None:
    made = migrate_text(LAYER.format("Meta", "step[self.handle]"))
    assert made.text() == LAYER.format("Meta", "step[self.handle]").replace(
        "        assert isinstance(attn_metadata, Meta)\n", ""
    )


@pytest.mark.parametrize(
    ("of", "look_up"),
    [
        ("Other", "step[self.handle]"),
        ("object", "step[self.handle]"),
        ("Meta", "step[self.somewhere.else_]"),
        ("Meta", "self.steps[self.handle]"),
    ],
)
def test_layers_whose_look_up_may_have_another_type_are_left(of: str, look_up: str) -> None:
    source = LAYER.format(of, look_up)
    made = migrate_text(source)
    assert made.text() == source
    assert [each.changes for each in made.findings()] == [False]


def test_a_look_up_by_name_becomes_a_typed_one_where_the_handle_is_at_hand() -> None:
    made = migrate_text(LAYER.format("Meta", "step.attn_metadata[self.name]"))
    assert made.text() == LAYER.format("Meta", "step[self.handle]").replace(
        "        assert isinstance(attn_metadata, Meta)\n", ""
    )
    other = LAYER.format("Other", "step.attn_metadata[self.name]")
    assert migrate_text(other).text() == other


def test_outcome_of_a_class_of_which_nothing_changes() -> None:
    made = migrate_text(f"{HEAD}{INIT}\n\nclass Second(Mine):\n    pass\n")
    assert made.report("Second").outcome is Outcome.UNCHANGED


def returns_of(text: str, function: str) -> str:
    found = next(
        each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef) and each.name == function
    )
    return "" if found.returns is None else ast.unparse(found.returns).replace("'", "").replace('"', "")
