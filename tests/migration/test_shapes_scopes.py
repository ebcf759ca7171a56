"""Names are taken for what they are at their place: imports, scopes, parameters, and classes of the file's own."""

from __future__ import annotations

import pytest
from migrated import Migration, migrate_package, migrate_text

from genericbuilders.migration.result import Outcome, Target

HEAD = """from typing import cast

from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, KVCacheSpec, MambaSpec


class Meta:
    pass


"""
CLASS = "class Mine(AttentionMetadataBuilder[Meta]):\n"
INIT = """    def __init__(self, kv_cache_spec: {}, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
"""
MAMBA = INIT.format("MambaSpec")
BOTH = pytest.mark.parametrize("target", list(Target))


def lines_of(text: str, indent: str = "        ") -> str:
    return "".join(f"{indent}{line}\n" for line in text.splitlines())


def kept(source: str, part: str, target: Target) -> Migration:
    """A migration after which a part of the text still stands."""
    assert part in source
    made = migrate_text(source, target)
    assert part in made.text()
    return made


@BOTH
def test_of_two_asserts_on_a_line_one_goes(target: Target) -> None:
    """Case `semi_two_asserts`."""
    line = "        assert isinstance(self.kv_cache_spec, MambaSpec); assert isinstance(device, str)\n"
    made = migrate_text(HEAD + CLASS + MAMBA + line, target)
    assert "        assert isinstance(device, str)\n" in made.text()
    assert "isinstance(self.kv_cache_spec" not in made.text()


@BOTH
def test_a_column_behind_letters_of_several_bytes(target: Target) -> None:
    line = "        self.x = 'é∑'; assert isinstance(self.kv_cache_spec, MambaSpec); assert isinstance(device, str)\n"
    made = migrate_text(HEAD + CLASS + MAMBA + line, target)
    assert "        self.x = 'é∑'; assert isinstance(device, str)\n" in made.text()


@BOTH
@pytest.mark.parametrize(
    "text",
    [
        "def check(kv_cache_spec):\n    assert isinstance(kv_cache_spec, MambaSpec)\ncheck(device)",
        "match device:\n    case kv_cache_spec:\n        assert isinstance(kv_cache_spec, MambaSpec)",
        "def pick(kv_cache_spec: KVCacheSpec):\n    return cast(MambaSpec, kv_cache_spec).shapes",
        "f = lambda kv_cache_spec: cast(MambaSpec, kv_cache_spec)",
        "f = [cast(MambaSpec, kv_cache_spec) for kv_cache_spec in device]",
        "self.reg.cast(MambaSpec, self.kv_cache_spec)",
        "class Inner:\n    def f(self):\n        assert isinstance(self.kv_cache_spec, MambaSpec)",
        "def later():\n    nonlocal kv_cache_spec\n    kv_cache_spec = 1\nassert isinstance(kv_cache_spec, MambaSpec)",
        "for self in device:\n    assert isinstance(self.kv_cache_spec, MambaSpec)",
    ],
)
def test_another_name_inside_the_constructor(text: str, target: Target) -> None:
    """Cases `nested_fn_param`, `except_as`, `typing_cast_lambda`, `method_cast`."""
    made = kept(HEAD + CLASS + MAMBA + lines_of(text), lines_of(text), target)
    assert made.report("Mine").spec == "MambaSpec"


@BOTH
@pytest.mark.parametrize(
    ("own", "line"),
    [
        ("def cast(kind, value):\n    return value", "self.x = cast(MambaSpec, self.kv_cache_spec)"),
        ("def isinstance(a, b):\n    return a.block_size == 16", "assert isinstance(self.kv_cache_spec, MambaSpec)"),
        ("from mine.checks import isinstance", "assert isinstance(self.kv_cache_spec, MambaSpec)"),
        ("from mine.checks import cast", "self.x = cast(MambaSpec, self.kv_cache_spec)"),
    ],
)
def test_functions_of_the_files_own(own: str, line: str, target: Target) -> None:
    """Cases `own_cast`, `own_isinstance`."""
    head = HEAD.replace("from typing import cast\n", "")
    kept(f"{head}{own}\n\n\n{CLASS}{MAMBA}        {line}\n", f"        {line}\n", target)


@pytest.mark.parametrize(
    ("brought", "call"),
    [
        ("from typing import cast as c", "c"),
        ("import typing", "typing.cast"),
        ("import typing_extensions as t", "t.cast"),
    ],
)
def test_a_cast_by_another_name_goes(brought: str, call: str) -> None:
    head = HEAD.replace("from typing import cast", brought)
    made = migrate_text(f"{head}{CLASS}{MAMBA}        self.x = {call}(MambaSpec, self.kv_cache_spec)\n")
    assert "        self.x = self.kv_cache_spec\n" in made.text()


@BOTH
def test_a_spec_under_another_name(target: Target) -> None:
    """Case `alias_spec`."""
    head = HEAD.replace("MambaSpec\n", "MambaSpec as MS\n")
    lines = "        assert isinstance(kv_cache_spec, MS)\n        self.x = self.kv_cache_spec.shapes\n"
    made = migrate_text(head + CLASS + INIT.format("MS") + lines, target)
    assert made.report("Mine").spec == "MS"
    assert "wrong" not in made.told("Mine")
    assert "assert" not in made.text()


@BOTH
def test_a_narrower_assert_under_another_name_stays(target: Target) -> None:
    """Case `fas_alias`."""
    head = HEAD.replace("FullAttentionSpec", "FullAttentionSpec as FAS")
    line = "        assert isinstance(kv_cache_spec, FAS)\n"
    made = kept(head + CLASS + INIT.format("AttentionSpec") + line, line, target)
    assert made.report("Mine").spec == "AttentionSpec"
    assert "kv_cache_spec: AttentionSpec, layer" in made.text()


@BOTH
def test_a_class_of_the_files_own_with_the_name_of_a_spec(target: Target) -> None:
    """Case `own_class_named_MambaSpec`."""
    head = HEAD.replace(", MambaSpec\n", "\n") + "class MambaSpec(KVCacheSpec):\n    mine = ()\n\n\n"
    made = migrate_text(head + CLASS + INIT.format("KVCacheSpec") + "        self.x = kv_cache_spec.shapes\n", target)
    assert made.report("Mine").outcome is Outcome.UNCHANGED
    line = "        assert isinstance(kv_cache_spec, b.MambaSpec)\n"
    other = head.replace("class Meta", "import vllm.v1.kv_cache_interface as b\n\n\nclass Meta", 1)
    kept(other + CLASS + MAMBA + line, line, target)


OWN = "class Shaped(KVCacheSpec):\n    shapes = ()\n\n\n"


@BOTH
@pytest.mark.parametrize(
    ("front", "hint", "line"),
    [
        ("from other.specs import ShapedSpec\n\n\n", "ShapedSpec", "self.n = self.kv_cache_spec.shapes"),
        (OWN, "Shaped", "self.n = kv_cache_spec.shapes"),
        (OWN, "Shaped", "assert isinstance(kv_cache_spec, MambaSpec)"),
        (
            "from other.specs import WindowedSpec\n\n\n",
            "AttentionSpec",
            "assert isinstance(kv_cache_spec, WindowedSpec)",
        ),
    ],
)
def test_an_authors_own_spec_is_not_overruled(front: str, hint: str, line: str, target: Target) -> None:
    """Cases `foreign_spec`, `ext_spec`, `unknown_related`."""
    made = kept(HEAD + front + CLASS + INIT.format(hint) + f"        {line}\n", line, target)
    assert made.report("Mine").spec == hint
    assert f"kv_cache_spec: {hint}, layer" in made.text()


@BOTH
@pytest.mark.parametrize(
    "method",
    [
        "def other(self, tensors):\n    return [spec.shapes for spec in tensors]",
        "def other(self, spec):\n    assert isinstance(spec, MambaSpec)\n    return spec.shapes",
        "@staticmethod\ndef size(kv_cache_spec):\n    assert isinstance(kv_cache_spec, MambaSpec)\n    return 1",
        "@staticmethod\ndef size(self):\n    assert isinstance(self.kv_cache_spec, MambaSpec)\n    return 1",
        "def other(self, groups):\n    for kv_cache_spec in groups:\n        assert isinstance(kv_cache_spec, MambaSpec)",
    ],
)
def test_another_method_has_names_of_its_own(method: str, target: Target) -> None:
    """Cases `spec_param_name_in_other_method`, `rope`, `static_helper_assert`, `global_spec_var`."""
    init = "    def __init__(self, spec: AttentionSpec, *rest):\n        super().__init__(spec, *rest)\n\n"
    text = lines_of(method, "    ")
    assert kept(HEAD + CLASS + init + text, text, target).report("Mine").spec == "AttentionSpec"


@BOTH
@pytest.mark.parametrize(
    "parameters",
    [
        "self, *args, rope: RopeSpec, **kwargs",
        "self, spec, layer_names, vllm_config, device, model: RopeSpec | None = None",
        "self, rope: RopeSpec, *args",
    ],
)
def test_what_merely_is_called_a_spec_is_none(parameters: str, target: Target) -> None:
    """Cases `quant_spec_kw`, `model_spec_first`."""
    first = "spec, layer_names, vllm_config, device" if "layer" in parameters else "*args"
    made = kept(
        f"{HEAD}class RopeSpec:\n    pass\n\n\n{CLASS}    def __init__({parameters}):\n        super().__init__({first})\n"
        "        self.n = self.kv_cache_spec.shapes\n",
        f"    def __init__({parameters}):\n",
        target,
    )
    assert made.report("Mine").spec == "MambaSpec"


def test_names_of_another_file() -> None:
    made = migrate_package(
        {
            "first.py": HEAD.replace("MambaSpec\n", "MambaSpec as MS\n") + CLASS + INIT.format("MS"),
            "second.py": "from vllm.v1.kv_cache_interface import AttentionSpec\n\nfrom mine.first import Mine\n\n\n"
            "class Second(Mine):\n" + INIT.format("AttentionSpec"),
        }
    )
    assert made.report("Second").spec == "MambaSpec"
    assert "import MambaSpec\n" in made.text("second.py")
    assert "MS" not in made.text("second.py")


@BOTH
def test_a_base_that_a_condition_chooses(target: Target) -> None:
    """Case `conditional_alias`."""
    source = (
        "import vllm.v1.attention.backend as b\nfrom vllm.v1.kv_cache_interface import MambaSpec\n\nOLD = False\n"
        "if OLD:\n    Base = object\nelse:\n    Base = b.AttentionMetadataBuilder\n\n\nclass Mine(Base):\n" + MAMBA
    )
    made = migrate_text(source, target)
    assert made.text() == source
    assert made.rules(changes=False) == {"conditional-base"}


LAYER = """from genericbuilders.adapter import AttentionLayer, Step


class Meta:
    pass


class Layer:
    def __init__(self, handle: AttentionLayer[Meta]) -> None:
        self.handle = handle

    def forward(self, step: Step, alt, ctx):
"""


@pytest.mark.parametrize(
    "body",
    [
        "attn_metadata = step[self.handle]\nif alt is not None:\n    attn_metadata = alt\n",
        "attn_metadata = step[self.handle]\nfor attn_metadata in alt:\n    pass\n",
        "attn_metadata = ctx.attn_metadata[self.prefix]\n",
        "attn_metadata = step.attn_metadata[self.prefix_of_another_layer]\n",
        "step = step.other\nattn_metadata = step.attn_metadata[self.name]\n",
        "step = step.other\nattn_metadata = step[self.handle]\n",
        "self.handle = alt\nattn_metadata = step[self.handle]\n",
    ],
)
def test_a_look_up_that_may_be_another(body: str) -> None:
    """Case `step_rebind`."""
    source = LAYER + lines_of(body + "assert isinstance(attn_metadata, Meta)\nreturn attn_metadata")
    made = migrate_text(source)
    assert made.text() == source
    assert [each.rule for each in made.findings()] == ["metadata-assert"]


def test_of_two_asserts_on_a_layers_line_one_goes() -> None:
    line = "assert isinstance(attn_metadata, Meta); assert isinstance(ctx, dict)"
    made = migrate_text(LAYER + lines_of(f"attn_metadata = step[self.handle]\n{line}\nreturn attn_metadata"))
    assert "        assert isinstance(ctx, dict)\n" in made.text()
    assert "assert isinstance(attn_metadata" not in made.text()
