"""Files are found once each, read byte for byte, and replaced whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genericbuilders.migration import files
from genericbuilders.migration.files import Failure, PathError, RefusedError, Replacer, find, read

TEXT = "x = 1\n"
LATIN = "# -*- coding: latin-1 -*-\nname = 'caf\xe9'\n".encode("latin-1")


def make(path: Path, data: bytes = TEXT.encode()) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_find_is_sorted_and_passes_over_what_is_not_the_projects(tmp_path: Path) -> None:
    wanted = [make(tmp_path / name) for name in ("a.py", "b/a.py", "b/z.py", "c.py")]
    for name in (".hidden/a.py", "__pycache__/a.py", "b/node_modules/a.py", "site-packages/a.py", "notes.txt", "d.pyi"):
        make(tmp_path / name)
    make(tmp_path / "env" / "pyvenv.cfg")
    make(tmp_path / "env" / "lib" / "a.py")
    assert find([tmp_path]).files == tuple(wanted)
    assert find([tmp_path / "c.py", tmp_path / "b", tmp_path / "a.py"]).files == tuple(wanted)
    # What is named counts wherever it is.
    assert find([tmp_path / ".hidden"]).files == (tmp_path / ".hidden" / "a.py",)


def test_find_names_a_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = make(tmp_path / "z.py")
    (tmp_path / "a.py").symlink_to(real)
    (tmp_path / "other").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    # Under its own name, not that of a link to it.
    assert find([Path("a.py"), Path("z.py"), Path("./z.py"), Path()]).files == (real,)
    assert find([Path("a.py")]).files == (tmp_path / "a.py",)
    # A link that is named is followed.
    assert find([Path("other")]).files == (tmp_path / "other" / "z.py",)


def test_find_survives_loops_of_links(tmp_path: Path) -> None:
    make(tmp_path / "a" / "a.py")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "loop.py").symlink_to("loop.py")
    assert find([tmp_path]).files == (tmp_path / "a" / "a.py", tmp_path / "loop.py")
    with pytest.raises(RefusedError, match="it cannot be read: Too many levels of symbolic links"):
        read(tmp_path / "loop.py")


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "a.py")
    make(tmp_path / "closed" / "b.py")
    scan = os.scandir

    def closed(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", closed)
    assert find([tmp_path]).failures == (Failure(tmp_path / "closed", "Permission denied"),)
    with pytest.raises(PathError, match="closed: Permission denied"):
        find([tmp_path / "closed"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "nowhere: there is no such file or folder"),
        ("notes.txt", r"notes.txt: it is not a Python file; the name must end in \.py"),
        ("folder", r"folder: there is no \.py file in it"),
    ],
)
def test_a_path_that_cannot_be_used(tmp_path: Path, name: str, message: str) -> None:
    make(tmp_path / "notes.txt")
    make(tmp_path / "folder" / "a.txt")
    with pytest.raises(PathError, match=message):
        find([make(tmp_path / "a.py"), tmp_path / name] if name != "folder" else [tmp_path / name])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x = 1",
        b"x = 1\r\ny = 2\r\n",
        b"x = 1\r\ny = 2\nz = 3\rw = '''\r\n\n'''",
        b"\xef\xbb\xbfx = '\xc3\xa9'\r\n",
        b"\xef\xbb\xbf# coding: utf-8\n",
        "x = '\x0c\x85\u2028'\n".encode(),
        LATIN,
        b"#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\nx = '\x80'\n",
    ],
)
def test_text_gives_the_same_bytes(tmp_path: Path, data: bytes) -> None:
    source = read(make(tmp_path / "a.py", data))
    assert source.encode(source.text) == data
    assert not source.text.startswith(files.BOM)


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["x = 1", "\n", "\r\n", "\r", "'\xe9'", "\x0c", "# coding: latin-1 "])).map("".join))
def test_every_mixture_gives_the_same_bytes(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    data = text.encode()
    source = read(make(tmp_path_factory.mktemp("mixed") / "a.py", data))
    assert source.encode(source.text) == data


def test_the_declared_encoding_is_used(tmp_path: Path) -> None:
    source = read(make(tmp_path / "a.py", LATIN))
    assert (source.encoding, source.text.splitlines()[1]) == ("iso-8859-1", "name = 'caf\xe9'")
    assert source.encode(source.text.replace("caf", "the")) == LATIN.replace(b"caf", b"the")
    # A declaration below the second line is none, also where carriage returns end lines.
    assert read(make(tmp_path / "b.py", b"#\r#\r# coding: latin-1\r")).encoding == "utf-8"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"# coding: nonsense\n", "it declares an unknown encoding: nonsense; correct the declaration"),
        (b"x = 1\ny = '\xe9'\n", "byte 0xe9 in line 2 is not utf-8; declare its encoding, or save it so"),
        (b"x = 1\r\r\n\ny = '\xe9'\n", "byte 0xe9 in line 4 is not utf-8"),
        (b"# coding: utf-8\n#\nx = '\xe9'\n", "byte 0xe9 in line 3 is not utf-8"),
        (b"# coding: ascii\nx = '\xc3\xa9'\n", "byte 0xc3 in line 2 is not ascii"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "it starts with a byte order mark of UTF-8 and declares another"),
        (b"\xef\xbb\xbfx = '\xe9'\n", "byte 0xe9 in line 1 is not utf-8"),
        (b"# coding: rot13\nx = 1\n", "its declared encoding rot13 cannot be used"),
        (b"# coding: undefined\nx = 1\n", "its declared encoding undefined cannot be used"),
        (b"# coding: utf-7\nx = '+AGE-'\n", "its declared encoding utf-7 does not give the same bytes back"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        read(make(tmp_path / "a.py", data))
    assert message in str(caught.value)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "link.py").symlink_to("gone")
    with pytest.raises(RefusedError, match="it is neither a file nor a folder"):
        read(tmp_path / "pipe.py")
    with pytest.raises(RefusedError, match="it is a link to gone, which is not there"):
        read(tmp_path / "link.py")
    with pytest.raises(RefusedError, match="it is no longer there"):
        read(tmp_path / "nowhere.py")


def test_replace_keeps_permissions_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = make(tmp_path / "a.py", b"\xef\xbb\xbfx = 1\r\n")
    path.chmod(0o751)
    os.chown(path, 1234, 1234) if os.getuid() == 0 else None
    source = read(path)
    Replacer().replace(source, source.text + "y = 2\r\n")
    status = path.stat()
    assert path.read_bytes() == b"\xef\xbb\xbfx = 1\r\ny = 2\r\n"
    assert status.st_mode & 0o7777 == 0o751
    assert os.getuid() != 0 or status.st_uid == 1234
    assert names(tmp_path) == ["a.py"]


def test_a_file_whose_owner_cannot_be_kept_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "a.py")

    def refused(path: Path, user: int, group: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refused)
    source = read(path)
    Replacer().replace(source, "y = 1\n")  # its own user's: only the group could have been lost
    if os.getuid() == 0:
        monkeypatch.undo()
        os.chown(path, 1234, 1234)
        monkeypatch.setattr(os, "chown", refused)
        with pytest.raises(
            RefusedError, match="it belongs to user 1234, which user 0, who runs this program, cannot keep"
        ):
            Replacer().replace(read(path), "y = 2\n")
    assert path.read_text() == "y = 1\n"
    assert names(tmp_path) == ["a.py"]


def test_a_name_that_is_too_long_is_told_so() -> None:
    with pytest.raises(PathError, match="File name too long"):
        find([Path("a" * 300 + ".py")])


def test_replace_writes_through_a_link(tmp_path: Path) -> None:
    real = make(tmp_path / "elsewhere" / "real.py")
    link = tmp_path / "link.py"
    link.symlink_to("elsewhere/real.py")
    Replacer().replace(read(link), "y = 2\n")
    assert link.is_symlink()
    assert real.read_text() == "y = 2\n"
    assert (names(tmp_path), names(real.parent)) == (["elsewhere", "link.py"], ["real.py"])


def changed(path: Path, patch: pytest.MonkeyPatch) -> None:
    path.write_text("x = 3\n")


def removed(path: Path, patch: pytest.MonkeyPatch) -> None:
    path.unlink()


def not_writable(path: Path, patch: pytest.MonkeyPatch) -> None:
    def access(path: Path, mode: int) -> bool:
        return mode != os.W_OK

    patch.setattr(os, "access", access)


def failing(name: str, number: int) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def set_up(path: Path, patch: pytest.MonkeyPatch) -> None:
        def fail(*arguments: object, **options: object) -> None:
            raise OSError(number, os.strerror(number), str(path))

        patch.setattr(os, name, fail)

    return set_up


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (changed, "it changed while this ran; nothing was written, run again"),
        (removed, "it is no longer there; nothing was written"),
        (not_writable, "no write permission; nothing was written"),
        (failing("open", errno.EACCES), "no permission to write in {folder} (Permission denied); nothing was written"),
        (failing("open", errno.EROFS), "no permission to write in {folder} (Read-only file system); nothing was writ"),
        (failing("replace", errno.EPERM), "no permission to write in {folder} (Operation not permitted); nothing"),
        (failing("fsync", errno.ENOSPC), "it cannot be written: No space left on device; nothing was written"),
    ],
)
def test_replace_refuses(
    tmp_path: Path, trouble: Callable[[Path, pytest.MonkeyPatch], None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "a.py")
    source = read(path)
    with monkeypatch.context() as patch:
        trouble(path, patch)
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(RefusedError) as caught:
            Replacer().replace(source, "y = 2\n")
    assert message.format(folder=tmp_path) in str(caught.value)
    assert (path.read_bytes() if path.exists() else None) == before
    assert names(tmp_path) == (["a.py"] if before else [])


def test_a_character_that_the_encoding_lacks(tmp_path: Path) -> None:
    source = read(make(tmp_path / "a.py", LATIN))
    with pytest.raises(RefusedError, match=r"has the character '\u03b1' \(U\+03B1\) in line 3, which iso-8859-1"):
        Replacer().replace(source, source.text + "\u03b1 = 1\n")
    assert (source.path.read_bytes(), names(tmp_path)) == (LATIN, ["a.py"])


@pytest.mark.parametrize("moment", ["open", "fdopen", "fsync", "chmod", "replace"])
def test_interrupted_at_any_moment_the_file_is_whole(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "a.py")
    source = read(path)
    real = getattr(os, moment)

    def interrupted(*arguments: object, **options: object) -> None:
        # As Ctrl-C is: what was begun is done, then the exception comes.
        real(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, moment, interrupted)
        with pytest.raises(KeyboardInterrupt):
            Replacer().replace(source, "y = 2\n")
    assert path.read_text() == ("y = 2\n" if moment == "replace" else TEXT)
    assert names(tmp_path) == ["a.py"]


def test_a_second_thread_can_clean_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = read(make(tmp_path / "a.py"))
    replacer = Replacer()

    def stuck(descriptor: int) -> None:
        assert len(names(tmp_path)) == 2
        replacer.abandon()
        assert names(tmp_path) == ["a.py"]

    monkeypatch.setattr(os, "fsync", stuck)
    with pytest.raises(RefusedError, match="it is no longer there"):
        replacer.replace(source, "y = 2\n")
    assert source.path.read_text() == TEXT
    replacer.abandon()


def test_write_makes_a_file_or_uses_a_pipe(tmp_path: Path) -> None:
    report, pipe = tmp_path / "report", tmp_path / "pipe"
    Replacer().write(report, b"new")
    Replacer().write(report, b"newer")
    assert report.read_bytes() == b"newer"
    # Not a device of the system: whoever breaks this would replace it.
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    Replacer().write(pipe, b"sent")
    assert os.read(reader, 10) == b"sent"
    os.close(reader)
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe", "report"]
