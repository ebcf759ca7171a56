from __future__ import annotations

import pytest

from typecheck.costs.writing import Writing, count, total


@pytest.mark.parametrize(
    ("source", "kind", "number"),
    [
        ('x = cast("int", y)\nz = typing.cast(int, y)\ncast = 1\n', "casts", 2),
        ("assert isinstance(x, int)\nassert x\nassert isinstance(y, A) and y\n", "asserts", 2),
        ("from typing import Any\nx: Any\ny: list[typing.Any]\n", "anys", 2),
        ('def f(x: "list[Any]") -> "Any": ...\n', "anys", 2),
        ('x = cast("Any", y)\nz = print("Any")\n', "anys", 1),
        ("X: TypeAlias = Builder[Any]\n", "anys", 1),
        ("class A(Builder[Any]): ...\n", "anys", 1),
        ("def f(x: object) -> TypeGuard[int]: ...\ndef g(x: object) -> typing.TypeIs[int]: ...\n", "guards", 2),
        ("def f(x: TypeGuard[int]) -> bool: ...\n", "guards", 0),
        ("if isinstance(x, MambaSpec) or isinstance(x, (A, UniformTypeKVCacheSpecs)): ...\n", "spec_tests", 2),
        ("if isinstance(spec, int) or isinstance(MambaSpec, type): ...\n", "spec_tests", 0),
        ("assert isinstance(x, MambaSpec)\n", "spec_tests", 0),
        (
            "class A:\n    kv_cache_spec: B\n    other: B\n    kv_cache_spec: B = c\nkv_cache_spec: B\n",
            "re_annotations",
            1,
        ),
        ("class A(B):\n    def __init__(self, kv_cache_spec: C): ...\n", "narrowed_inits", 0),
        ("class A(XBuilder[M]):\n    def __init__(self, kv_cache_spec: C): ...\n", "narrowed_inits", 1),
        ("class A(XBuilder):\n    def __init__(self, kv_cache_spec): ...\n", "narrowed_inits", 0),
        ("class A(XBuilder):\n    def build(self, kv_cache_spec: C): ...\n", "narrowed_inits", 0),
        ('"""Doc.\n\nMore.\n"""\n\n# comment\nx = (\n    1\n)\n\n\ndef f():\n    """Doc."""\n', "lines", 4),
        ('text = """a\nb\n"""\n', "lines", 3),
        ("def f(\n    x: int,\n    y,\n) -> tuple[\n    int\n]:\n    z: int = x\n", "annotated", 5),
    ],
)
def test_each_kind_is_counted(source: str, kind: str, number: int) -> None:
    assert getattr(count(source), kind) == number


def test_ignores_are_counted_by_checker() -> None:
    source = (
        "x = 1  # type: ignore[a]  # pyright: ignore[b]\n"
        "y = 2  # pyrefly: ignore[c]  because\n"
        "# pyright: ignore\n"
        "z = '# type: ignore'\n"
        "w = 3  # pyright: strict\n"
    )

    assert count(source).ignores == {"pyrefly": 1, "pyright": 2, "type": 1}


def test_a_total_has_every_kind_and_its_hatches() -> None:
    one = Writing(1, 2, 3, {"type": 1}, 4, 5, 6, 7, 8, 9)
    other = Writing(10, 20, 30, {"type": 1, "ty": 2}, 40, 50, 60, 70, 80, 90)

    both = total([one, other])
    assert both == Writing(11, 22, 33, {"ty": 2, "type": 2}, 44, 55, 66, 77, 88, 99)
    assert both.hatches == 33 + 4 + 44 + 55 + 66
    assert total([]) == Writing()


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(SyntaxError):
        _ = count("def")
