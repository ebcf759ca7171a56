from __future__ import annotations

import pytest

from typecheck.costs.parameter import Spelling, spelled

BY_ARGUMENT = "class A(AttentionMetadataBuilder[M, MambaSpec | Other], ABC): ...\n"
BY_DEFAULT = "class A(AttentionMetadataBuilder[M]): ...\n"
BY_ANCESTOR = "class A(BaseMambaMetadataBuilder[M]): ...\n"
RE_ANNOTATED = "class A(AttentionMetadataBuilder[M]):\n    kv_cache_spec: B  # why\n"
NARROWED = """class A(AttentionMetadataBuilder[M]):
    def __init__(self, kv_cache_spec: B, n: int) -> None:
        super().__init__(kv_cache_spec, n)
"""
ASSERTING = """class A(AttentionMetadataBuilder[M]):
    def __init__(self, kv_cache_spec: Base, n: int) -> None:
        super().__init__(kv_cache_spec, n)
        self.other = n

    def build(self) -> M:
        assert isinstance(self.kv_cache_spec, B)
        assert self.other
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (BY_ARGUMENT, Spelling(1, by_argument=1, characters=len(", MambaSpec | Other"))),
        (BY_DEFAULT, Spelling(1, by_default=1)),
        (BY_ANCESTOR, Spelling(1, by_ancestor=1)),
        (RE_ANNOTATED, Spelling(1, by_more=1, lines=1, characters=len("kv_cache_spec: B  # why"))),
        (
            NARROWED,
            Spelling(
                1,
                by_more=1,
                lines=2,
                characters=len(
                    "def __init__(self, kv_cache_spec: B, n: int) -> None:super().__init__(kv_cache_spec, n)"
                ),
            ),
        ),
        # An `__init__` that does more would be there anyhow; the assert would not.
        (ASSERTING, Spelling(1, by_more=1, lines=1, characters=len("assert isinstance(self.kv_cache_spec, B)"))),
        # Nothing about the spec, however little it does.
        (
            "class A(XBuilder):\n    def __init__(self, n: int):\n        super().__init__(n)\n",
            Spelling(1, by_ancestor=1),
        ),
        ("class A(Group): ...\nclass B: ...\n", Spelling()),
    ],
)
def test_how_a_spec_is_said(source: str, expected: Spelling) -> None:
    assert spelled([source]) == expected


def test_modules_are_summed() -> None:
    assert spelled([BY_ARGUMENT + BY_DEFAULT, BY_ANCESTOR, RE_ANNOTATED]) == Spelling(
        builders=4,
        by_argument=1,
        by_more=1,
        by_ancestor=1,
        by_default=1,
        lines=1,
        characters=len(", MambaSpec | Other") + len("kv_cache_spec: B  # why"),
    )
