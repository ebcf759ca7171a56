"""Comments, docstrings, form feeds and line ends stay what they were; `migrate_package` counts the comments."""

from __future__ import annotations

import pytest
from migrated import migrate_text

from genericbuilders.migration.result import Target

HEAD = """from typing import cast  # see issue 12
from vllm.v1.attention.backend import (  # i1
    # i2
    AttentionMetadataBuilder,  # i3
    # i4
)  # i5
from vllm.v1.kv_cache_interface import (
    AttentionSpec,  # attention only
    KVCacheSpec,  # any
    MambaSpec,
)


class Meta:
    pass


"""
PLAIN = """from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import MambaSpec


class Meta:
    pass


class Mine(AttentionMetadataBuilder[Meta]):
"""
INIT = """    def __init__(self, kv_cache_spec: MambaSpec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
"""
BOTH = pytest.mark.parametrize("target", list(Target))


@BOTH
def test_comments_everywhere(target: Target) -> None:
    """Cases `comments_in_assert`, `comment_places`, `import_comment_lost`."""
    made = migrate_text(
        HEAD
        + """# k0
class Mine(  # k1
    # k2
    AttentionMetadataBuilder[  # base
        Meta,  # meta
    ],  # k3
    # k4
):  # k5
    # k6
    kv_cache_spec: MambaSpec  # k7
    # k8

    def __init__(  # a0
        self,
        kv_cache_spec: KVCacheSpec,  # a1
        *rest: object,
    ) -> None:
        super().__init__(kv_cache_spec, *rest)
        # b0
        assert isinstance(  # b1
            kv_cache_spec,  # b2
            (AttentionSpec, MambaSpec),
        ), "told"  # b3
        self.x = cast(  # c1
            MambaSpec,
            self.kv_cache_spec,  # c2
        )
        self.y = cast(MambaSpec, kv_cache_spec)
        if rest:
            # d0
            assert isinstance(self.kv_cache_spec, MambaSpec), \\
                "told"
            # d1
        else:
            assert isinstance(self.kv_cache_spec, MambaSpec)  # d2
""",
        target,
    )
    assert "assert" not in made.text()
    assert "self.y = kv_cache_spec\n" in made.text()


def test_a_comment_behind_an_import_that_would_go() -> None:
    head = PLAIN.replace("from vllm", "from typing import cast  # see issue 12\nfrom vllm", 1)
    made = migrate_text(head + INIT + "        self.x = cast(MambaSpec, self.kv_cache_spec)\n")
    assert "from typing import cast  # see issue 12\n" in made.text()


@BOTH
def test_classes_on_one_line(target: Target) -> None:
    """Case `marker_oneliner`."""
    marker = "# genericbuilders: spec=MambaSpec"
    made = migrate_text(
        PLAIN + INIT + f"class Second(AttentionMetadataBuilder[Meta]): pass  {marker}\n"
        f"class Third(AttentionMetadataBuilder[Meta]): x = 1; y = 2  {marker}\n",
        target,
    )
    assert not [line for line in made.text().splitlines() if line != line.rstrip()]
    if target is Target.WIDENED:
        assert f"Meta]):  {marker}\n    kv_cache_spec: MambaSpec\n    x = 1\n    y = 2\n" in made.text()


@BOTH
def test_a_pass_with_a_comment_stays(target: Target) -> None:
    source = PLAIN.replace("Meta]):", "Meta]):  # genericbuilders: spec=MambaSpec") + "    # why\n    pass  # so\n"
    assert "    # why\n    pass  # so\n" in migrate_text(source, target).text()


@BOTH
def test_form_feeds_stay(target: Target) -> None:
    """Case `formfeed`."""
    lines = "\f        assert isinstance(self.kv_cache_spec, MambaSpec)  # c1\n\f        # c2\n\f        self.n = 1\n"
    source = PLAIN.replace("class", "\fclass") + f"\f    kv_cache_spec: MambaSpec\n\f\n{INIT}{lines}\fx = 1\n"
    after = migrate_text(source, target).text()
    assert "\fclass Mine" in after
    assert "\f        self.n = 1\n\fx = 1\n" in after


def test_a_column_behind_a_form_feed() -> None:
    made = migrate_text(
        PLAIN + INIT + "\f        assert isinstance(self.kv_cache_spec, MambaSpec)\n        self.n = 1\n"
    )
    assert "assert" not in made.text()


def test_a_new_import_ends_as_the_line_before_it() -> None:
    source = (
        "import os\n" + PLAIN.replace("\nfrom vllm", "\r\nfrom vllm").replace("MambaSpec\n", "MambaSpec\r\n") + INIT
    )
    made = migrate_text(source.replace("BackendBuilder", "x"))
    assert "AttentionMetadataBuilder\r\n" in made.text()
    kept = PLAIN.replace("import AttentionMeta", "import Other, AttentionMeta").replace("Builder\n", "Builder\r\n", 1)
    assert "base import AttentionMetadataBuilder\r\n" in migrate_text("import os\n" + kept + INIT).text()


@BOTH
@pytest.mark.parametrize(
    "body",
    [
        '    kv_cache_spec: MambaSpec\n    """What it is given."""\n    x = 1\n',
        '    x = 1\n    kv_cache_spec: MambaSpec\n    """What it is given."""\n',
        '    kv_cache_spec: MambaSpec\n    x: int\n    """About x."""\n',
    ],
)
def test_a_string_below_an_annotation_describes_it(body: str, target: Target) -> None:
    """Case `attr_doc`."""
    assert body in migrate_text(PLAIN + body + "\n" + INIT, target).text()


@BOTH
def test_no_string_becomes_a_docstring(target: Target) -> None:
    """Case `doc_string_shift`."""
    text = '    def f(self):\n        assert isinstance(self.kv_cache_spec, MambaSpec)\n        "no docstring"\n        return 1\n'
    made = migrate_text(PLAIN + INIT + "\n" + text, target)
    assert text in made.text()
    assert any("description" in each.message for each in made.findings() if not each.changes)


@BOTH
@pytest.mark.parametrize(
    "text",
    [
        "    def f(self): assert isinstance(self.kv_cache_spec, MambaSpec)\n",
        "    def f(self):\n        if self.x: assert isinstance(self.kv_cache_spec, MambaSpec)\n",
        "    def f(self):\n        assert isinstance(self.kv_cache_spec, MambaSpec), self.told()\n",
        "    def f(self):\n        assert isinstance(self.kv_cache_spec, MambaSpec), (x := 1)\n",
    ],
)
def test_asserts_that_cannot_go_are_told(text: str, target: Target) -> None:
    """Cases `oneliner_assert`, `walrus`."""
    made = migrate_text(PLAIN + INIT + "\n" + text, target)
    assert text in made.text()
    assert [each.changes for each in made.findings() if each.rule == "needless-assert"] == [False]


def test_an_annotation_on_the_classs_line_stays() -> None:
    """Case `oneliner_annotation`."""
    made = migrate_text(PLAIN + "    pass\nclass Second(AttentionMetadataBuilder[Meta]): kv_cache_spec: MambaSpec\n")
    assert made.text().endswith(
        "class Second(AttentionMetadataBuilder[Meta, MambaSpec]): kv_cache_spec: MambaSpec\n"
    ) or ("): kv_cache_spec: MambaSpec\n" in made.text())
