"""From where modules are named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from genericbuilders.cli.compare_files import collect
from genericbuilders.cli.compare_imports import Places, import_places


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def found_places(folder: Path, paths: list[str], search_paths: list[str]) -> Places:
    sources = collect([folder / path for path in paths]).files
    return import_places(sources, folder, [Path(os.path.normpath(folder / path)) for path in search_paths])


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
def test_the_current_folder_and_more(
    tmp_path: Path, files: dict[str, str], paths: list[str], search_paths: list[str], bases: list[str]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    write(root, files)
    places = found_places(root, paths, search_paths)
    assert places.root == root
    assert [base.resolve() for base in places.bases] == [(root / base).resolve() for base in bases]


PACKAGE = {"p/__init__.py": "", "p/b.py": "", "p/sub/__init__.py": ""}


@pytest.mark.parametrize(
    ("files", "folder", "paths", "root", "bases"),
    [
        ({**PACKAGE, "p/a.py": "from .b import x"}, "p", ["."], ".", []),
        ({**PACKAGE, "p/a.py": "from . import b"}, "p", ["a.py", "sub"], ".", []),
        ({**PACKAGE, "p/a.py": "from p.b import x"}, "p", ["."], ".", []),
        ({**PACKAGE, "p/a.py": "from .b import x"}, "p/sub", [".."], ".", []),
        ({**PACKAGE, "p/sub/a.py": "from .. import b"}, "p/sub", ["."], ".", []),
        ({**PACKAGE, "p/sub/a.py": "import p.b"}, "p/sub", ["a.py"], ".", []),
        # Though what is imported is not there: that is the checkers' to say.
        ({**PACKAGE, "p/a.py": "from .gone import x"}, "p", ["."], ".", []),
        # Modules below are named from here all the same.
        ({**PACKAGE, "p/sub/a.py": "from . import b"}, "p", ["."], "p", []),
        ({**PACKAGE, "p/a.py": "import b"}, "p", ["."], "p", []),
        # More of it than there is.
        ({**PACKAGE, "p/a.py": "from ..b import x"}, "p", ["."], "p", []),
        # A namespace package: the import tells, if what it names is there.
        ({"src/app/a.py": "from . import b", "src/app/b.py": ""}, "src/app", ["."], "src", []),
        ({"src/app/a.py": "from .b import x", "src/app/b.py": ""}, "src/app", ["a.py"], "src", []),
        ({"src/app/a.py": "from . import gone"}, "src/app", ["."], "src/app", []),
        ({"src/app/a.py": "from . import b", "src/app/b.py": ""}, ".", ["src"], ".", []),
        # No checker can name a package so.
        ({"a-p/__init__.py": "", "a-p/a.py": "from . import b"}, "a-p", ["."], "a-p", []),
        # A test in a package, and what it tests beside it.
        ({"t/__init__.py": "", "t/a.py": "import app", "app/__init__.py": ""}, "t", ["."], "t", ["."]),
        # Somebody else's package.
        ({**PACKAGE, "p/a.py": "from .b import x", "q/c.py": ""}, "q", ["../p", "."], "q", ["."]),
        ({"q/c.py": "", "p/a.py": "from . import b", "p/b.py": ""}, "q", ["../p"], "q", ["."]),
    ],
)
def test_inside_a_package(
    tmp_path: Path, files: dict[str, str], folder: str, paths: list[str], root: str, bases: list[str]
) -> None:
    write(tmp_path, files)
    (tmp_path / folder).mkdir(exist_ok=True)
    places = found_places(tmp_path / folder, paths, [])
    assert places == Places(tmp_path / root, tuple(tmp_path / base for base in bases))


def test_a_folder_that_was_named_counts(tmp_path: Path) -> None:
    write(tmp_path, {**PACKAGE, "p/a.py": "from .b import x"})
    assert found_places(tmp_path / "p", ["."], ["."]).root == tmp_path / "p"
    assert found_places(tmp_path / "p", ["."], [".."]) == Places(tmp_path, ())


def test_more_levels_than_there_are_folders(tmp_path: Path) -> None:
    write(tmp_path, {"p/a.py": f"from {'.' * 99} import b\nfrom . import c", "p/c.py": ""})
    assert found_places(tmp_path / "p", ["."], []).root == tmp_path
