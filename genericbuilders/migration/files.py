"""Finds and reads Python files byte for byte, and replaces them whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from codecs import BOM_UTF8
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tokenize import detect_encoding

__all__ = ["BOM", "Failure", "Found", "PathError", "RefusedError", "Replacer", "SourceFile", "find", "read"]

SUFFIX = ".py"
BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
# Not of the project, though inside its folder.
FOREIGN_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})


class PathError(ValueError):
    """A path that was named cannot be used; the message says which and why."""


class RefusedError(Exception):
    """A file was not read or not replaced; the message says why, without the file's name."""


@dataclass(frozen=True)
class Failure:
    """A file that was skipped, or in which something failed, and the reason."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Found:
    """Absolute paths of files in order, each file under one name only, and what could not be looked into."""

    files: tuple[Path, ...]
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class SourceFile:
    """A file as it was read.

    Attributes:
        path: absolute, as it was found; it may be a symbolic link.
        data: its bytes.
        text: decoded, without the byte order mark; line ends are those of the file.
        encoding: that its first lines declare, else ``utf-8``.
        bom: whether it starts with a byte order mark.
    """

    path: Path
    data: bytes
    text: str
    encoding: str
    bom: bool

    def encode(self, text: str) -> bytes:
        """The bytes that the file would have with this text.

        Raises:
            RefusedError: the file's encoding has no such character.
        """
        try:
            return _encode(text, self.encoding, self.bom)
        except UnicodeEncodeError as error:
            character, line = text[error.start], text.count("\n", 0, error.start) + 1
            raise RefusedError(
                f"its new text has the character {character!r} (U+{ord(character):04X}) in line {line}, which "
                f"{self.encoding}, the encoding that it declares, cannot write; save the file as UTF-8"
            ) from None


def find(paths: Sequence[Path]) -> Found:
    """Find the ``.py`` files that are named or are in folders that are named.

    Hidden folders, caches, virtual environments and folders behind symbolic links are passed over, unless named.

    Raises:
        PathError: a path that cannot be used, or there is no ``.py`` file at all.
    """
    found: dict[str, Path] = {}
    failures: dict[Path, Failure] = {}
    for named in paths:
        path = Path(os.path.abspath(named))
        if os.path.isdir(path):
            inside, refused = _in_folder(path)
            if any(failure.path == path for failure in refused):
                raise PathError(f"{named}: {refused[0].reason}")
            failures.update((failure.path, failure) for failure in refused)
        else:
            inside = [_named(named, path)]
        for file in inside:
            real = os.path.realpath(file)
            # Others import it by its own name, not by that of a link to it.
            if real not in found or (found[real].is_symlink() and not file.is_symlink()):
                found[real] = file
    if not found:
        where = ", ".join(map(str, paths)) or "no path"
        raise PathError(f"{where}: there is no {SUFFIX} file in it; name files or folders that have some")
    return Found(tuple(sorted(found.values())), tuple(failures[path] for path in sorted(failures)))


def read(path: Path) -> SourceFile:
    """Read a file in the encoding that it declares (PEP 263).

    Args:
        path: absolute.

    Raises:
        RefusedError: it cannot be read, or not so that the same text would give the same bytes.
    """
    data = _read_bytes(path)
    lines = iter(data.splitlines(keepends=True))
    try:
        declared, _ = detect_encoding(lambda: next(lines, b""))
    except SyntaxError as error:
        raise RefusedError(_undeclared(data, str(error.msg))) from None
    bom = declared == "utf-8-sig"
    encoding = "utf-8" if bom else declared
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise RefusedError(_no_text(data, error, encoding)) from None
    except (LookupError, UnicodeError) as error:
        raise RefusedError(f"its declared encoding {encoding} cannot be used: {error}") from None
    text = text.removeprefix(BOM) if bom else text
    if encoding != "utf-8" and not _gives(text, encoding, bom, data):
        raise RefusedError(f"its declared encoding {encoding} does not give the same bytes back; save it as UTF-8")
    return SourceFile(path, data, text, encoding, bom)


class Replacer:
    """Replaces files, one after the other, so that each is at any time whole: the old one or the new one."""

    def __init__(self) -> None:
        self._temporary: Path | None = None

    def replace(self, source: SourceFile, text: str) -> None:
        """Give a file a new text. Its permissions stay; behind a symbolic link, the file it leads to is replaced.

        Raises:
            RefusedError: it may not or cannot be written, or has changed since it was read; it is as it was.
        """
        data = source.encode(text)
        target = Path(os.path.realpath(source.path))
        try:
            status = os.stat(target)
            if not os.access(target, os.W_OK):
                raise RefusedError("no write permission; nothing was written")
            self._swap(source, target, data, status)
        except OSError as error:
            raise RefusedError(f"{_why(error, target.parent)}; nothing was written") from None

    def write(self, path: Path, data: bytes) -> None:
        """Write a file that may be new; what is no regular file, such as a device, is written to.

        Raises:
            OSError: it cannot be written.
        """
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        self._swap(None, target, data, os.stat(target) if target.exists() else None)

    def abandon(self) -> None:
        """Remove the temporary file, if there is one: for a second thread that is about to end the process."""
        temporary = self._temporary
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)

    def _swap(self, source: SourceFile | None, target: Path, data: bytes, status: os.stat_result | None) -> None:
        temporary = target.with_name(f".{target.name[:64]}.{secrets.token_hex(8)}.partial")
        # Known before the file is there, so that no interrupt finds a file of which nobody knows.
        self._temporary = temporary
        try:
            _fill(temporary, data, status)
            if source is not None and _read_bytes(source.path) != source.data:
                raise RefusedError("it changed while this ran; nothing was written, run again")
            os.replace(temporary, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        finally:
            self._temporary = None


def _fill(path: Path, data: bytes, status: os.stat_result | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if status is not None:
        if hasattr(os, "chown"):
            _give(path, status)
        os.chmod(path, stat.S_IMODE(status.st_mode))


def _give(path: Path, status: os.stat_result) -> None:
    """Give a new file the owner and the group of the one that it is to replace.

    Raises:
        RefusedError: the owner cannot be kept. A group that cannot be is let go.
    """
    if not hasattr(os, "chown"):
        return
    try:
        os.chown(path, status.st_uid, status.st_gid)
    except OSError:
        made = os.stat(path)
        if made.st_uid != status.st_uid:
            raise RefusedError(
                f"it belongs to user {status.st_uid}, which user {made.st_uid}, who runs this program, cannot keep; "
                "nothing was written, run it as its owner"
            ) from None


def _in_folder(top: Path) -> tuple[list[Path], list[Failure]]:
    failures: list[Failure] = []

    def refused(error: OSError) -> None:
        failures.append(Failure(Path(str(error.filename)), error.strerror or str(error)))

    files: list[Path] = []
    for folder, subfolders, names in os.walk(top, onerror=refused):
        subfolders[:] = sorted(name for name in subfolders if _is_own(Path(folder, name)))
        files.extend(Path(folder, name) for name in sorted(names) if name.endswith(SUFFIX))
    return files, failures


def _is_own(folder: Path) -> bool:
    hidden = folder.name.startswith(".")
    return not hidden and folder.name not in FOREIGN_FOLDERS and not os.path.exists(folder / "pyvenv.cfg")


def _named(named: Path, path: Path) -> Path:
    try:
        os.lstat(path)
    except FileNotFoundError:
        raise PathError(f"{named}: there is no such file or folder") from None
    except OSError as error:
        raise PathError(f"{named}: {error.strerror or error}") from None
    if path.suffix != SUFFIX:
        raise PathError(f"{named}: it is not a Python file; the name must end in {SUFFIX}")
    return path


def _read_bytes(path: Path) -> bytes:
    try:
        # Opening a pipe would wait for somebody to write to it.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise RefusedError("it is neither a file nor a folder")
        return path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise RefusedError(f"it is a link to {os.readlink(path)}, which is not there") from None
        raise RefusedError("it is no longer there") from None
    except OSError as error:
        raise RefusedError(f"it cannot be read: {error.strerror or error}") from None


def _encode(text: str, encoding: str, bom: bool) -> bytes:
    return (BOM + text if bom else text).encode(encoding)


def _gives(text: str, encoding: str, bom: bool, data: bytes) -> bool:
    try:
        return _encode(text, encoding, bom) == data
    except UnicodeError:
        return False


def _undeclared(data: bytes, told: str) -> str:
    if data.startswith(BOM_UTF8):
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return _no_text(data, error, "utf-8")
        return "it starts with a byte order mark of UTF-8 and declares another encoding; remove one of the two"
    if "unknown" in told:
        return f"it declares an {told}; correct the declaration"
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return _no_text(data, error, "utf-8")
    return f"{told}; correct the declaration"


def _no_text(data: bytes, error: UnicodeDecodeError, encoding: str) -> str:
    line = len((data[: error.start] + b"-").splitlines())
    return f"byte 0x{data[error.start]:02x} in line {line} is not {encoding}; declare its encoding, or save it so"


def _why(error: OSError, folder: Path) -> str:
    if error.errno == errno.ENOENT:
        return "it is no longer there"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"no permission to write in {folder} ({error.strerror})"
    return f"it cannot be written: {error.strerror or error}"
