"""What tells which spec a builder takes, in order of trust; and what is known to be false."""

from __future__ import annotations

import pytest
from migrated import Migration, migrate_package, migrate_text

from genericbuilders.migration.result import Outcome

HEAD = """from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)


class Meta:
    pass


class Mine(AttentionMetadataBuilder[Meta]):
"""
INIT = """    def __init__(self, kv_cache_spec{hint}, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
"""


def migrate_class(body: str) -> Migration:
    return migrate_text(HEAD + body)


def init(hint: str, *lines: str) -> str:
    return INIT.format(hint=f": {hint}" if hint else "") + "".join(f"        {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("body", "spec", "says"),
    [
        ("    kv_cache_spec: MambaSpec\n", "MambaSpec", "annotation"),
        ("    kv_cache_spec: FullAttentionSpec\n" + init("AttentionSpec"), "FullAttentionSpec", "annotation"),
        (init("MambaSpec"), "MambaSpec", "__init__"),
        (init('"MambaSpec"'), "MambaSpec", "__init__"),
        (init("MambaSpec | FullAttentionSpec"), "MambaSpec | FullAttentionSpec", "__init__"),
        (init("KVCacheSpec", "assert isinstance(kv_cache_spec, MambaSpec)"), "MambaSpec", "assert"),
        (init("", "assert isinstance(self.kv_cache_spec, MambaSpec)"), "MambaSpec", "assert"),
        (
            init("KVCacheSpec", "if not isinstance(kv_cache_spec, MambaSpec):", "    raise TypeError(kv_cache_spec)"),
            "MambaSpec",
            "isinstance",
        ),
        (
            init("", "assert isinstance(self.kv_cache_spec, (SlidingWindowMLASpec, MLAAttentionSpec))"),
            "SlidingWindowMLASpec | MLAAttentionSpec",
            "assert",
        ),
        (
            "    @classmethod\n    def get_cudagraph_support(cls, vllm_config, kv_cache_spec: MambaSpec):\n        return 0\n",
            "MambaSpec",
            "get_cudagraph_support",
        ),
        (init("", "self.n = kv_cache_spec.num_kv_heads"), "AttentionSpec", "num_kv_heads"),
        (init("KVCacheSpec", "self.n = self.kv_cache_spec.shapes"), "MambaSpec", "shapes"),
        (init("", "self.n = kv_cache_spec.shapes, kv_cache_spec.mamba_type"), "MambaSpec", "shapes"),
    ],
)
def test_evidence(body: str, spec: str, says: str) -> None:
    made = migrate_class(body)
    assert made.report("Mine").spec == spec
    assert says in str(made.report("Mine").evidence)
    assert made.base("Mine") == f"AttentionMetadataBuilder[Meta,{spec.replace(' ', '')}]"


def test_a_field_of_one_spec_alone() -> None:
    made = migrate_class(init("", "self.n = kv_cache_spec.sliding_window, kv_cache_spec.extra_retained_tokens"))
    assert made.report("Mine").spec in ("SlidingWindowSpec", None)


def test_fields_that_two_kinds_have_tell_nothing() -> None:
    # Attention and states both have padded pages.
    made = migrate_class(init("", "self.n = kv_cache_spec.page_size_padded"))
    assert made.report("Mine").outcome is Outcome.REFUSED


def test_an_alternative_is_no_demand() -> None:
    made = migrate_class(init("", "self.window = isinstance(kv_cache_spec, SlidingWindowSpec)"))
    assert made.report("Mine").outcome is Outcome.REFUSED
    made = migrate_class(
        init("AttentionSpec", "if isinstance(kv_cache_spec, MambaSpec):", "    self.x = kv_cache_spec.shapes")
    )
    assert made.report("Mine").spec == "AttentionSpec", (
        "a field that is read in a branch of another type proves nothing"
    )


def test_an_assert_under_a_condition_is_no_demand() -> None:
    made = migrate_class(init("", "if vllm_config:", "    assert isinstance(kv_cache_spec, MambaSpec)"))
    assert made.report("Mine").outcome is Outcome.REFUSED


def test_nothing_known_asks_for_a_marker() -> None:
    source = HEAD + init("", "self.n = kv_cache_spec.block_size")
    made = migrate_text(source)
    assert made.text() == source
    report = made.report("Mine")
    assert report.outcome is Outcome.REFUSED
    assert (report.spec, report.evidence) == (None, None)
    assert "# genericbuilders: spec=" in made.told("Mine")


@pytest.mark.parametrize("text", ["MambaSpec", "MambaSpec | FullAttentionSpec"])
def test_marker(text: str) -> None:
    source = HEAD.replace("Builder[Meta]):\n", f"Builder[Meta]):  # genericbuilders: spec={text}\n")
    made = migrate_text(source + init("", "self.n = kv_cache_spec.block_size"))
    assert made.report("Mine").spec == text
    assert "marker" in str(made.report("Mine").evidence)
    assert made.base("Mine") == f"AttentionMetadataBuilder[Meta,{text.replace(' ', '')}]"


def test_a_marker_beats_a_hint() -> None:
    source = HEAD.replace("Builder[Meta]):\n", "Builder[Meta]):  # genericbuilders: spec=FullAttentionSpec\n")
    assert migrate_text(source + init("AttentionSpec")).report("Mine").spec == "FullAttentionSpec"


def test_marker_on_a_header_of_several_lines() -> None:
    source = HEAD.replace(
        "(AttentionMetadataBuilder[Meta]):",
        "(\n    AttentionMetadataBuilder[Meta],\n):  # genericbuilders: spec=MambaSpec",
    )
    assert migrate_text(source + init("")).report("Mine").spec == "MambaSpec"


def test_a_marker_that_names_no_spec_of_the_file_is_imported() -> None:
    source = HEAD.replace("    MambaSpec,\n", "").replace(
        "Builder[Meta]):", "Builder[Meta]):  # genericbuilders: spec=MambaSpec"
    )
    made = migrate_text(source + init(""))
    assert made.arguments("Mine") == ("Meta", "MambaSpec")


def test_marker_in_a_string_is_none() -> None:
    made = migrate_class('    note = "# genericbuilders: spec=MambaSpec"\n' + init(""))
    assert made.report("Mine").outcome is Outcome.REFUSED


@pytest.mark.parametrize(
    ("line", "proof"),
    [
        ("self.n = kv_cache_spec.shapes", "shapes"),
        ("self.n = self.kv_cache_spec.mamba_cache_mode", "mamba_cache_mode"),
        ("assert isinstance(kv_cache_spec, MambaSpec)", "assert"),
    ],
)
def test_a_false_hint_is_not_trusted(line: str, proof: str) -> None:
    made = migrate_class(init("AttentionSpec", line))
    assert made.report("Mine").spec == "MambaSpec"
    assert proof in made.told("Mine")
    assert "AttentionSpec" in made.told("Mine")
    assert "kv_cache_spec: MambaSpec" in made.text()


def test_a_false_hint_below_vllms_state_builders() -> None:
    made = migrate_text(
        "from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadataBuilder\n"
        "from vllm.v1.kv_cache_interface import AttentionSpec\n\n\n"
        "class Mine(GDNAttentionMetadataBuilder):\n" + init("AttentionSpec")
    )
    assert made.report("Mine").spec == "MambaSpec"
    assert "AttentionSpec" in made.told("Mine")
    assert any("hint" in each.rule for each in made.report("Mine").findings)
    assert made.base("Mine") == "GDNAttentionMetadataBuilder", "vLLM's own class takes no spec"


def test_a_false_hint_below_a_builder_of_another_file() -> None:
    made = migrate_package(
        {
            "first.py": HEAD + init("MambaSpec"),
            "second.py": "from vllm.v1.kv_cache_interface import AttentionSpec\n\nfrom mine.first import Mine\n\n\n"
            "class Second(Mine):\n" + init("AttentionSpec"),
        }
    )
    assert made.report("Second").spec == "MambaSpec"
    assert any("hint" in each.rule for each in made.report("Second").findings)
    assert "kv_cache_spec: MambaSpec" in made.text("second.py")


def test_the_attention_fields_do_not_make_a_state_hint_true() -> None:
    made = migrate_class(init("MambaSpec", "self.n = kv_cache_spec.num_kv_heads"))
    report = made.report("Mine")
    assert report.outcome is Outcome.REFUSED or "hint" in made.told("Mine")


def test_a_wide_hint_of_a_base_says_nothing_against_a_narrow_one() -> None:
    made = migrate_text(HEAD + init("AttentionSpec") + "\n\nclass Second(Mine):\n" + init("KVCacheSpec"))
    assert made.report("Second").spec == "AttentionSpec"


def test_renamed() -> None:
    made = migrate_class(
        "    def __init__(self, spec: MambaSpec, layer_names, vllm_config, device):\n"
        "        super().__init__(spec, layer_names, vllm_config, device)\n"
        "        assert isinstance(spec, MambaSpec)\n"
    )
    assert made.report("Mine").spec == "MambaSpec"
    assert "assert" not in made.text()


def test_renamed_without_a_hint() -> None:
    made = migrate_class(
        "    def __init__(self, spec, layer_names, vllm_config, device):\n"
        "        super().__init__(spec, layer_names, vllm_config, device)\n"
        "        self.shapes = spec.shapes\n"
    )
    assert made.report("Mine").spec == "MambaSpec"


@pytest.mark.parametrize(
    "parameters", ["*args, **kwargs", "*args, kv_cache_spec, **kwargs", "*, kv_cache_spec: KVCacheSpec, **kwargs"]
)
def test_passed_on(parameters: str) -> None:
    made = migrate_class(
        f"    def __init__(self, {parameters}):\n"
        "        super().__init__(*args, **kwargs)\n"
        "        assert isinstance(self.kv_cache_spec, MambaSpec)\n"
    )
    assert made.report("Mine").spec == "MambaSpec"
    assert made.base("Mine") == "AttentionMetadataBuilder[Meta,MambaSpec]"


def test_keyword_only() -> None:
    made = migrate_class("    def __init__(self, *, kv_cache_spec: MambaSpec, **kwargs):\n        pass\n")
    assert made.report("Mine").spec == "MambaSpec"


def test_a_spec_of_the_plug_ins_own() -> None:
    made = migrate_package(
        {
            "specs.py": "from vllm.v1.kv_cache_interface import AttentionSpec\n\n\nclass OwnSpec(AttentionSpec):\n    pass\n",
            "attention.py": HEAD.replace("\n\nclass Meta", "from .specs import OwnSpec\n\n\nclass Meta", 1)
            + init("OwnSpec", "assert isinstance(kv_cache_spec, AttentionSpec)"),
        }
    )
    assert made.arguments("Mine") == ("Meta", "OwnSpec")
    assert "assert" not in made.text(), "an assert of a wider type is needless too"


def test_optional_hint() -> None:
    made = migrate_class(init("AttentionSpec | None"))
    assert "None" not in made.base("Mine")
