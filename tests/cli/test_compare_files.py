"""Which files are compared on, and what is left out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from genericbuilders.cli.compare_files import collect
from genericbuilders.cli.errors import UserError


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


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of somebody who may not do everything, as root may."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = os.geteuid() == 0
        if root:
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            for path in folder.iterdir():
                path.chmod(0o700)


@pytest.mark.parametrize(
    ("mode", "lost"), [(0o000, "closed"), (0o400, "closed/b.py"), (0o100, "closed")], ids=["none", "list", "enter"]
)
def test_a_folder_that_may_not_be_read(unprivileged: Path, mode: int, lost: str) -> None:
    write(unprivileged, {"a.py": "", "closed/b.py": ""})
    closed = unprivileged / "closed"
    closed.chmod(mode)
    found = collect([unprivileged])
    assert [source.path.name for source in found.files] == ["a.py"]
    assert found.left_out == ((unprivileged / lost, "Permission denied"),)
    with pytest.raises(UserError, match=r"closed: .*Permission denied"):
        _ = collect([closed])


def test_what_is_in_a_folder_that_may_not_be_entered(unprivileged: Path) -> None:
    write(unprivileged, {"closed/b.py": "", "closed/sub/c.py": ""})
    (unprivileged / "closed").chmod(0)
    for name in ("b.py", "sub"):
        with pytest.raises(UserError, match=f"{name}: Permission denied"):
            _ = collect([unprivileged / "closed" / name])
