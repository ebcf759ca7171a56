"""Which files are compared on, and from where their modules are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from genericbuilders.cli.compare_files import collect, import_bases


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def names(folder: Path, *paths: str) -> list[str]:
    return [str(source.path.relative_to(folder)) for source in collect([folder / path for path in paths]).files]


def test_folders_are_searched_in_order_and_each_file_counts_once(tmp_path: Path) -> None:
    kept = ["z.py", "a/b.py", "a/c.pyi", "a/b/d.py"]
    skipped = [".git/x.py", "__pycache__/x.py", "node_modules/x.py", "env/x.py", "a/site-packages/x.py", "x.txt"]
    write(tmp_path, dict.fromkeys([*kept, *skipped, "env/pyvenv.cfg"], ""))
    (tmp_path / "link.py").symlink_to("z.py")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert names(tmp_path, "a", "z.py", ".") == ["a/b.py", "a/c.pyi", "a/b/d.py", "z.py"]
    # What is named is taken, wherever it is.
    assert names(tmp_path, ".git", "env/x.py") == [".git/x.py", "env/x.py"]


def test_a_stub_and_its_module_when_both_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"m.py": "", "m.pyi": ""})
    assert names(tmp_path, "m.py", "m.pyi") == ["m.py", "m.pyi"]
    assert names(tmp_path, ".") == ["m.pyi"]


def test_lines_end_only_where_checkers_end_them(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes("\ufeffa\r\nb\fb\u2028b\rc\n".encode())
    (source,) = collect([tmp_path / "a.py"]).files
    assert source.lines == ["a", "b\fb\u2028b", "c", ""]


@pytest.mark.parametrize(
    ("files", "paths", "search_paths", "bases"),
    [
        # Named from the current folder.
        ({"p/__init__.py": "", "p/a.py": "import p.b, os\nfrom . import b", "p/b.py": ""}, ["p"], [], []),
        # A script that imports its neighbour.
        ({"scripts/a.py": "import near", "scripts/near.py": ""}, ["scripts/a.py"], [], ["scripts"]),
        # A test that imports from the whole.
        ({"tests/a.py": "from tests.near import x", "tests/near.py": ""}, ["tests"], [], []),
        # A package below src, used from elsewhere.
        ({"src/p/__init__.py": "", "tests/a.py": "import p"}, ["tests"], [], ["src"]),
        # A namespace package below the folder that was named.
        ({"lib/n/p/__init__.py": "", "lib/n/p/a.py": "import n.p"}, ["lib"], [], ["lib"]),
        # Told already.
        ({"lib/n/p/__init__.py": "", "lib/n/p/a.py": "import n.p"}, ["lib"], ["lib"], []),
        # Outside of the current folder.
        ({"../x/p/__init__.py": "", "../x/p/a.py": "from . import b"}, ["../x/p"], [], ["../x"]),
        ({"../x/same.py": "", "../y/same.py": ""}, ["../x", "../y"], [], [".."]),
        # Nothing can be known about it.
        ({"d/a.py": "def (", "d/b.py": "x = '\0'"}, ["d"], [], []),
    ],
)
def test_bases(
    tmp_path: Path, files: dict[str, str], paths: list[str], search_paths: list[str], bases: list[str]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    write(root, files)
    found = collect([root / path for path in paths]).files
    told = [root / path for path in search_paths]
    assert [base.resolve() for base in import_bases(found, root, told)] == [(root / base).resolve() for base in bases]
