"""Bad input: one line that names cause and mend, exit code 2, nothing on stdout, and no model loaded in vain."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from cli_plugin import LOADER, make_model_folder
from typer.testing import Result

from genericbuilders.cli.errors import UserError, memory_errors
from genericbuilders.plugins import ENTRY_POINT_GROUP

Invoke = Callable[..., Result]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that are loaded."""
    seen: list[Path] = []
    load = type(LOADER).load

    def noted(self: object, path: Path, options: object) -> object:
        seen.append(path)
        return load(LOADER, path, options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - passed on

    monkeypatch.setattr(type(LOADER), "load", noted)
    return seen


def refused(result: Result, *said: str) -> None:
    assert result.exit_code == 2, (result.stdout, result.stderr, result.exception)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, result.stderr
    for part in said:
        assert part in errors[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--prompt", ""), ("--prompt #1: the prompt is empty",)),
        (("--prompt", "a", "--prompt", ""), ("--prompt #2: the prompt is empty",)),
        (("--prompt", "a\udcff"), ("--prompt #1: character 2 of the prompt is not valid text",)),
        ((), ("there is no prompt; give --prompt",)),
        (("--prompt", "a", "--max-tokens", 0), ("max_tokens is 0; ask for at least 1",)),
        (("--prompt", "a", "--block-size", 0), ("block_size is 0",)),
        (("--prompt", "a", "--num-blocks", 1), ("num_blocks is 1", "at least 2")),
        (("--prompt", "a", "--max-num-batched-tokens", -5), ("max_num_batched_tokens is -5",)),
        (("--prompt", "a", "--max-num-seqs", 0), ("max_num_seqs is 0",)),
        (("--prompt", "a", "--top-p", 0), ("top_p is 0.0",)),
        (("--prompt", "a", "--top-k", -1), ("top_k is -1",)),
        (("--prompt", "a", "--temperature", "nan"), ("temperature is nan",)),
        (("--prompt", "a", "--seed", 2**64), ("seed is 18446744073709551616",)),
        (("--prompt", "a", "--stop", ""), ("a stop text is empty",)),
        (("--prompt", "a", "--backend", "nope"), ("no adapter is called 'nope'", "tiny_dense")),
    ],
)
def test_options_are_checked_before_a_model_is_loaded(
    invoke: Invoke, model: Path, loads: list[Path], arguments: tuple[str, ...], said: tuple[str, ...]
) -> None:
    refused(invoke("generate", "--model", model, *arguments), *said)
    assert not loads


@pytest.mark.parametrize("arguments", [("--max-tokens", "many"), ("--dtype", "int8"), ("--device", "tpu"), ("--nope",)])
def test_what_typer_refuses_ends_with_the_same_code(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    result = invoke("generate", "--prompt", "a", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ("is empty; write one object a line",)),
        (b"\n \n", ("is empty; write one object a line",)),
        (b'{"prompt": "a"}\n{"prompt"\n', ("prompts.jsonl:2: no JSON",)),
        (b'{"prompt": "a"}\n["b"]\n', ("prompts.jsonl:2: the line is an array",)),
        (b"null\n", ("prompts.jsonl:1: the line is null",)),
        (b'{"prompt": "a", "max_tokens": 3}\n', ("prompts.jsonl:1: unknown key 'max_tokens'",)),
        (b'{"prompt": "a", "prompt": "b"}\n', ("prompts.jsonl:1: no JSON (repeated key 'prompt')",)),
        (b"{}\n", ('prompts.jsonl:1: the key "prompt" is missing',)),
        (b'\n{"prompt": 3}\n', ('prompts.jsonl:2: "prompt" is a number; it must be a string',)),
        (b'{"prompt": true}\n', ('prompts.jsonl:1: "prompt" is true',)),
        (b'{"prompt": ""}\n', ("prompts.jsonl:1: the prompt is empty",)),
        (b'{"prompt": "a\xff"}\n', ("prompts.jsonl:1: byte 14 of the line is not UTF-8",)),
        (b'{"prompt": "\\ud800"}\n', ("prompts.jsonl:1: character 1 of the prompt is not valid text",)),
        (b"[" * 100_000 + b"\n", ("prompts.jsonl:1: no JSON",)),
    ],
)
def test_bad_lines_are_named(
    invoke: Invoke, model: Path, loads: list[Path], tmp_path: Path, content: bytes, said: tuple[str, ...]
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    refused(invoke("generate", "--model", model, "--prompts", file), *said)
    assert not loads


def test_prompts_files_that_cannot_be_read(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    refused(invoke("generate", "--model", model, "--prompts", tmp_path / "none"), "none cannot be read: No such file")
    refused(invoke("generate", "--model", model, "--prompts", tmp_path), "is a folder; --prompts takes a file")


def test_models_that_cannot_be_loaded(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    refused(invoke("generate", "--model", tmp_path / "none", "--prompt", "a"), "no model folder at", "config.json")
    refused(invoke("generate", "--model", tmp_path, "--prompt", "a"), "has no config.json")
    other = make_model_folder(tmp_path / "other", "GigaForCausalLM")
    refused(invoke("generate", "--model", other, "--prompt", "a"), "GigaForCausalLM", "served are: TinyForCausalLM")
    (model / "broken").touch()
    refused(invoke("generate", "--model", model, "--prompt", "a"), "is broken; mend it")


def test_no_default_model(invoke: Invoke, entry_points: list[EntryPoint]) -> None:
    refused(invoke("generate", "--prompt", "a"), "none of the model loaders (tiny) brings a default model", "--model")
    entry_points.clear()
    refused(invoke("generate", "--prompt", "a"), "no model loader is installed", "pip install")


def test_requests_that_cannot_be_served_are_named_before_any_is_run(
    invoke: Invoke, model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "' + "b" * 64 + '"}\n', encoding="utf-8")
    too_long = invoke("generate", "--model", model, "--prompts", file)
    refused(too_long, "prompts.jsonl:2", "64 tokens", "shorten it to 63")
    small = ("--block-size", 4, "--num-blocks", 3)
    too_small = invoke("generate", "--model", model, "--prompt", "a", "--prompt", "abcdefghij", *small)
    refused(too_small, "--prompt #1", "needs 4 blocks", "the pool has 2", "--num-blocks")


def test_a_pool_larger_than_the_machine(invoke: Invoke, model: Path) -> None:
    huge = invoke("generate", "--model", model, "--prompt", "a", "--num-blocks", 10**12)
    refused(huge, "--num-blocks 1000000000000 needs", "so at most")


def test_memory_that_is_not_there() -> None:
    no_memory = pytest.raises(UserError, match=r"not enough memory for the caches \(.*\); have less")
    with no_memory, memory_errors("the caches", "have less"):
        torch.empty(2**50, dtype=torch.int8)
    with pytest.raises(RuntimeError, match="something else"), memory_errors("the caches", "have less"):
        raise RuntimeError("something else")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_where_there_is_none(invoke: Invoke, model: Path, loads: list[Path]) -> None:
    refused(invoke("generate", "--model", model, "--prompt", "a", "--device", "cuda"), "--device cuda", "--device cpu")
    assert not loads


def test_the_wrong_back_end(invoke: Invoke, model: Path) -> None:
    other = invoke("generate", "--model", model, "--prompt", "a", "--backend", "flash_attn")
    refused(
        other,
        "no layer runs on 'flash_attn', which was asked for: 'layers.0' runs on 'tiny_dense', as the loader",
        "leave the option out",
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("fast_prefill", "it stores nothing, but reads what 'flash_attn' has stored"),
        ("cross", "it takes CrossAttentionSpec alone"),
        ("encoder_only", "it takes EncoderOnlyAttentionSpec alone"),
    ],
)
def test_a_back_end_that_serves_no_decoder(name: str, why: str, invoke: Invoke, model: Path, loads: list[Path]) -> None:
    refused(invoke("generate", "--model", model, "--prompt", "a", "--backend", name), f"--backend {name}: {why}")
    assert not loads


def test_a_back_end_of_other_layers(invoke: Invoke, model: Path) -> None:
    other = invoke("generate", "--model", model, "--prompt", "a", "--backend", "mamba2")
    refused(other, "--backend mamba2: no layer runs on it: 'layers.0' runs on 'tiny_dense'", "leave --backend out")


def test_two_adapters_of_one_name(invoke: Invoke, model: Path, entry_points: list[EntryPoint]) -> None:
    entry_points.append(EntryPoint("again", "cli_plugin:TWIN", ENTRY_POINT_GROUP))
    for command in (("generate", "--model", model, "--prompt", "a"), ("backends",)):
        refused(invoke(*command), "two adapters are called 'tiny_dense'", "cli_plugin:TWIN")


def test_an_entry_point_that_raises_is_a_warning(invoke: Invoke, model: Path, entry_points: list[EntryPoint]) -> None:
    entry_points.insert(0, EntryPoint("gone", "no_such_module:x", ENTRY_POINT_GROUP))
    result = invoke("generate", "--model", model, "--prompt", "a", "--max-tokens", 1)
    assert (result.exit_code, result.stdout) == (0, "b\n")
    assert "warning: entry point gone = no_such_module:x was left out: ModuleNotFoundError" in result.stderr


def test_a_fault_of_the_program_is_not_hidden(invoke: Invoke, model: Path) -> None:
    (model / "buggy").touch()
    result = invoke("generate", "--model", model, "--prompt", "a")
    assert isinstance(result.exception, ArithmeticError)
