"""Shapes that are left to the author, each with a reason; and files in which nothing is to be found."""

from __future__ import annotations

from pathlib import Path

import pytest
from migrated import migrate_package, migrate_text

from genericbuilders.migration.project import Project
from genericbuilders.migration.result import Outcome, Target

META = "\n\nclass Meta:\n    pass\n\n\n"
INIT = """    def __init__(self, kv_cache_spec: AttentionSpec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        return Meta()
"""
SPEC = "from vllm.v1.kv_cache_interface import AttentionSpec\n"


@pytest.mark.parametrize("target", Target)
def test_no_base_at_all(target: Target) -> None:
    source = f"{SPEC}{META}class MyMetadataBuilder:\n{INIT}"
    made = migrate_text(source, target)
    assert made.text() == source
    assert made.report("MyMetadataBuilder").outcome is Outcome.REFUSED
    assert made.report("MyMetadataBuilder").findings


@pytest.mark.parametrize("target", Target)
def test_old_engine(target: Target) -> None:
    source = (
        f"from vllm.attention.backends.abstract import AttentionMetadataBuilder\n{META}"
        "class Mine(AttentionMetadataBuilder[Meta]):\n    def __init__(self, input_builder):\n        self.runner = input_builder.runner\n\n"
        "    def build(self, seq_lens, query_lens):\n        return Meta()\n"
    )
    made = migrate_text(source, target)
    assert made.text() == source
    assert made.report("Mine").outcome is Outcome.REFUSED
    assert "input_builder" in made.told("Mine")


@pytest.mark.parametrize("module", ["vllm.attention", "vllm.attention.backends.abstract"])
def test_old_engine_below_a_class_of_ones_own(module: str) -> None:
    source = (
        f"from {module} import AttentionMetadataBuilder\n{META}"
        "class First(AttentionMetadataBuilder[Meta]):\n    def __init__(self, input_builder):\n        pass\n\n    def build(self, seq_lens):\n        pass\n\n\n"
        "class Second(First):\n    pass\n"
    )
    made = migrate_text(source)
    assert made.text() == source
    for name in ("First", "Second"):
        assert made.report(name).outcome is Outcome.REFUSED
        assert "old" in made.told(name) or "input_builder" in made.told(name)


@pytest.mark.parametrize("target", Target)
def test_base_that_only_a_run_knows(target: Target) -> None:
    source = (
        f"{SPEC}{META}def make(backend):\n    base = backend.get_builder_cls()\n\n    class Inner(base):\n"
        "        def build(self, common_prefix_len, common_attn_metadata, fast_build=False):\n"
        "            return super().build(common_prefix_len, common_attn_metadata, fast_build)\n\n    return Inner\n"
    )
    made = migrate_text(source, target)
    assert made.text() == source
    assert made.report("make.<locals>.Inner").outcome is Outcome.REFUSED


@pytest.mark.parametrize("target", Target)
def test_base_that_is_a_parameter(target: Target) -> None:
    source = (
        f"from vllm.v1.attention.backend import AttentionMetadataBuilder\n{SPEC}{META}"
        "def make(underlying: type[AttentionMetadataBuilder[Meta]]):\n    class Inner(underlying):\n"
        "        def build(self, common_prefix_len, common_attn_metadata, fast_build=False):\n"
        "            return super().build(common_prefix_len, common_attn_metadata, fast_build)\n\n    return Inner\n"
    )
    made = migrate_text(source, target)
    assert made.report("make.<locals>.Inner").outcome is Outcome.REFUSED
    assert "class Inner(underlying):" in made.text()


@pytest.mark.parametrize("target", Target)
def test_made_by_type(target: Target) -> None:
    source = (
        f"from vllm.v1.attention.backend import AttentionMetadataBuilder\n{META}"
        'def make(name):\n    return type("Made", (AttentionMetadataBuilder,), {"kv_cache_spec": None})\n'
    )
    made = migrate_text(source, target)
    assert made.text() == source
    assert made.report("Made").outcome is Outcome.REFUSED
    assert made.report("Made").line == source[: source.index("type(")].count("\n") + 1


def test_type_of_one_argument_is_no_factory() -> None:
    source = "from vllm.v1.attention.backend import AttentionMetadataBuilder\n\nprint(type(AttentionMetadataBuilder))\n"
    made = migrate_text(source)
    assert made.text() == source
    assert not [each for result in made.results.values() for each in result.classes]


@pytest.mark.parametrize(
    "choice",
    [
        "try:\n    from vllm.v1.attention.backend import AttentionMetadataBuilder\nexcept ImportError:\n    class AttentionMetadataBuilder:\n        pass\n",
        "try:\n    from vllm.v1.attention.backend import AttentionMetadataBuilder\nexcept ImportError:\n    AttentionMetadataBuilder = object\n",
        "import vllm\n\nif vllm.__version__ > '0.1':\n    from vllm.v1.attention.backend import AttentionMetadataBuilder\nelse:\n    from mine.stub import AttentionMetadataBuilder\n",
    ],
)
def test_conditional_base_with_a_stub(choice: str) -> None:
    source = f"{choice}\n{SPEC}{META}class Mine(AttentionMetadataBuilder):\n{INIT}"
    made = migrate_package({"stub.py": "class AttentionMetadataBuilder:\n    pass\n", "attention.py": source})
    assert made.text() == source
    assert made.report("Mine").outcome is Outcome.REFUSED


def test_conditional_import_of_the_two_homes() -> None:
    source = (
        "try:\n    from vllm.v1.attention.backend import AttentionMetadataBuilder\nexcept ImportError:\n"
        "    from vllm.v1.attention.backends.utils import AttentionMetadataBuilder\n"
        f"\n{SPEC}{META}class Mine(AttentionMetadataBuilder[Meta]):\n{INIT}"
    )
    made = migrate_text(source)
    if made.report("Mine").outcome is Outcome.REFUSED:
        assert made.text() == source
    else:
        assert made.arguments("Mine") == ("Meta", "AttentionSpec")


def test_conditional_builder_with_a_stub() -> None:
    source = (
        "try:\n    from vllm.v1.attention.backends.flash_attn import FlashAttentionMetadataBuilder\nexcept ImportError:\n"
        f"    class FlashAttentionMetadataBuilder:\n        pass\n\n{SPEC}{META}class Mine(FlashAttentionMetadataBuilder):\n{INIT}"
    )
    made = migrate_text(source)
    assert "class Mine(FlashAttentionMetadataBuilder):" in made.text()
    assert made.report("Mine").outcome is not Outcome.MIGRATED


@pytest.mark.parametrize("base", ["MLACommonMetadataBuilder[Meta]", "MLACommonMetadataBuilder"])
def test_below_a_builder_of_vllms_that_is_not_there(base: str) -> None:
    source = (
        "from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadataBuilder\n"
        f"from vllm.v1.kv_cache_interface import AttentionSpec, MLAAttentionSpec\n{META}"
        f"class Mine({base}):\n    kv_cache_spec: MLAAttentionSpec\n\n{INIT}        assert isinstance(self.kv_cache_spec, AttentionSpec)\n"
    )
    made = migrate_text(source)
    assert f"class Mine({base}):" in made.text(), "two arguments to a base that takes one raise TypeError"
    assert "kv_cache_spec: MLAAttentionSpec" in made.text(), "its base does not say so"
    assert made.report("Mine").findings


def test_one_builder_that_can_be_told_and_one_that_cannot() -> None:
    source = (
        f"from vllm.v1.attention.backend import AttentionMetadataBuilder\n{SPEC}{META}"
        f"class Mine(AttentionMetadataBuilder[Meta]):\n{INIT}\n\nclass Other(AttentionMetadataBuilder[Meta]):\n    pass\n"
    )
    made = migrate_text(source)
    assert made.arguments("Mine") == ("Meta", "AttentionSpec")
    assert made.base("Other") == "AttentionMetadataBuilder[Meta]"
    assert made.report("Other").outcome is Outcome.REFUSED
    assert made.arguments("Other") == ("Meta",)


def test_a_root_that_cannot_be_told_whose_subclasses_can() -> None:
    source = (
        "from vllm.v1.attention.backend import AttentionMetadataBuilder\n"
        f"from vllm.v1.kv_cache_interface import AttentionSpec, MambaSpec\n{META}"
        f"class Root(AttentionMetadataBuilder[Meta]):\n    pass\n\n\nclass First(Root):\n{INIT}\n\n"
        f"class Second(Root):\n{INIT.replace('AttentionSpec', 'MambaSpec')}"
    )
    made = migrate_text(source)
    for name, spec in (("First", "AttentionSpec"), ("Second", "MambaSpec")):
        report = made.report(name)
        assert report.outcome is Outcome.REFUSED or made.arguments(name) == (spec,)
        assert report.outcome is not Outcome.UNCHANGED


def test_siblings_below_a_narrow_root() -> None:
    source = (
        "from vllm.v1.attention.backend import AttentionMetadataBuilder\n"
        f"from vllm.v1.kv_cache_interface import AttentionSpec, MambaSpec\n{META}"
        f"class Root(AttentionMetadataBuilder[Meta]):\n{INIT}\n\n"
        "class Below(Root):\n    kv_cache_spec: MambaSpec\n"
    )
    made = migrate_text(source)
    assert made.report("Below").findings
    assert "Root[MambaSpec]" not in made.text()


def test_a_name_that_is_taken() -> None:
    source = (
        "from vllm.v1.attention import backend\nfrom vllm.v1.kv_cache_interface import AttentionSpec as Attn\n\n\n"
        f"class AttentionMetadataBuilder:\n    pass\n{META}class Mine(backend.AttentionMetadataBuilder[Meta]):\n"
        f"{INIT.replace('AttentionSpec', 'Attn')}"
    )
    made = migrate_text(source)
    assert made.report("Mine").outcome is Outcome.REFUSED or made.arguments("Mine") == ("Meta", "AttentionSpec")


def test_a_spec_name_that_is_taken() -> None:
    source = (
        f"from vllm.v1.attention.backend import AttentionMetadataBuilder\n{META}class MambaSpec:\n    pass\n\n\n"
        "class Mine(AttentionMetadataBuilder[Meta]):\n    def __init__(self, kv_cache_spec, *rest):\n"
        "        super().__init__(kv_cache_spec, *rest)\n        self.x = kv_cache_spec.shapes\n"
    )
    made = migrate_text(source)
    if made.report("Mine").outcome is not Outcome.REFUSED:
        assert "import MambaSpec" not in made.text() or "import MambaSpec as" in made.text()


def test_a_file_that_does_not_parse() -> None:
    path = Path("/project/mine/broken.py")
    good = Path("/project/mine/good.py")
    project = Project.read({path: "class :\n", good: "x = 1\n"})
    assert "line 1" in project.unparsed[path]
    assert path not in project.relevant()
    assert good not in project.unparsed


def test_loose_files_of_one_folder_import_each_other() -> None:
    first, second, other = (Path(f"/project/{name}.py") for name in ("loose/first", "loose/second", "elsewhere/first"))
    source = f"from vllm.v1.attention.backend import AttentionMetadataBuilder\n{SPEC}{META}class Mine(AttentionMetadataBuilder[Meta]):\n{INIT}"
    project = Project.read(
        {
            other: "class Mine:\n    pass\n",
            first: source,
            second: "from first import Mine\n\n\nclass Second(Mine):\n    pass\n",
        }
    )
    assert set(project.relevant()) == {first, second}
