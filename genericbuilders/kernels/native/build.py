"""Compile the kernels once per machine with the system's C++ compiler, and find them again."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

import torch

__all__ = ["BuildError", "build_library", "cache_folder"]

SOURCES = ("attention.cpp", "elementwise.cpp", "quantised_write.cpp", "state_conv.cpp", "state_scan.cpp")
# No -ffast-math: minus infinity marks what is not seen, and sums keep their order.
FLAGS = (
    "-O3",
    "-march=native",
    "-std=gnu++17",
    "-fopenmp",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
)
TIMEOUT_SECONDS = 300


class BuildError(RuntimeError):
    """The kernels cannot be compiled here; the message is the reason."""


def cache_folder() -> Path:
    """Where compiled kernels are kept: ``$XDG_CACHE_HOME`` or ``~/.cache``, below ``genericbuilders/native``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "genericbuilders" / "native"


def build_library() -> Path:
    """The compiled kernels for this machine, made now if they are not there yet (some seconds).

    Two processes may do this at once: each compiles in a folder of its own and moves its result into place.

    Raises:
        BuildError: there is no compiler, it failed, or the cache folder cannot be written.
    """
    compiler = _compiler()
    folder = resources.files("genericbuilders.kernels.native") / "src"
    sources = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith((".cpp", ".h"))}
    runtime = _openmp_runtime()
    try:
        target = cache_folder() / f"{_key(compiler, sources, runtime)}.so"
        if target.is_file():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as build:
            for name, content in sources.items():
                (Path(build) / name).write_bytes(content)
            made = _compile(compiler, Path(build), runtime)
            made.replace(target)
    except (OSError, RuntimeError) as error:
        if isinstance(error, BuildError):
            raise
        raise BuildError(
            f"the compiled kernels cannot be kept: {error}; set XDG_CACHE_HOME to a writable folder"
        ) from error
    return target


def _compiler() -> str:
    """The C++ compiler to use: ``$CXX``, else the first of those that are common."""
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else ("g++", "c++", "clang++"):
        found = shutil.which(name)
        if found:
            return found
    raise BuildError(f"no C++ compiler: {wanted or 'g++, c++ and clang++'} not found on PATH; install g++ or set CXX")


def _openmp_runtime() -> Path | None:
    """The OpenMP library that torch brings and has loaded, where it is GNU's.

    Linking against this very file (some wheels rename it) gives one pool of threads to torch and to these kernels.
    """
    package = Path(torch.__file__).parent
    for folder in (package / "lib", package.parent / "torch.libs"):
        for found in sorted(folder.glob("libgomp*.so*")):
            return found
    return None


def _key(compiler: str, sources: dict[str, bytes], runtime: Path | None) -> str:
    """A name that changes with everything the result depends on."""
    digest = hashlib.sha256()
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=TIMEOUT_SECONDS, check=False).stdout
    for part in (compiler.encode(), version, _cpu(), str((FLAGS, SOURCES)).encode(), str(runtime).encode()):
        digest.update(part + b"\0")
    for name in sorted(sources):
        digest.update(name.encode() + b"\0" + sources[name] + b"\0")
    return digest.hexdigest()[:32]


def _cpu() -> bytes:
    """What ``-march=native`` reads: model and instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().split(b"\n\n", 1)[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}".encode()
    kept = (b"vendor_id", b"cpu family", b"model", b"flags", b"Features", b"CPU ")
    return b"\n".join(line for line in lines if line.startswith(kept))


def _compile(compiler: str, build: Path, runtime: Path | None) -> Path:
    """Compile and link in ``build``; returns the library in it."""
    objects = [name.removesuffix(".cpp") + ".o" for name in SOURCES]
    for source, made in zip(SOURCES, objects, strict=True):
        _run([compiler, *FLAGS, "-c", source, "-o", made], build)
    # Without -fopenmp the linker takes no OpenMP library but the one named.
    threads = ["-fopenmp"] if runtime is None else [str(runtime)]
    _run([compiler, "-shared", *objects, *threads, "-Wl,-z,defs", "-o", "kernels.so"], build)
    return build / "kernels.so"


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{command[0]} took longer than {TIMEOUT_SECONDS} seconds") from error
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[-200:])
        raise BuildError(f"{command[0]} failed: {complaint}")
