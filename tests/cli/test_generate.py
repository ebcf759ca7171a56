"""``generate`` on a tiny model: what is written, where, and in which order."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from genericbuilders.cli.generate import generate
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions

Invoke = Callable[..., Result]


def objects(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_one_prompt_is_streamed_as_text(invoke: Invoke, model: Path) -> None:
    result = invoke("generate", "--model", model, "--prompt", "abc", "--max-tokens", 5)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "defgh\n"


def test_several_prompts_come_in_their_order_each_under_its_title(invoke: Invoke, model: Path) -> None:
    result = invoke("generate", "--model", model, "--prompt", "a", "--prompt", "[red]x\ny", "--max-tokens", 2)
    assert result.exit_code == 0, result.stderr
    first, a, second, y = result.stdout.splitlines()
    assert (a, y) == ("bc", "z")
    assert first.startswith("0: a ──")
    assert second.startswith("1: [red]x y ──")


def test_json_is_one_object_a_prompt_and_nothing_else(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "more.jsonl"
    file.write_text('{"prompt": "y\\u00e9w"}\n\n{"prompt": "m"}\n', encoding="utf-8-sig")
    result = invoke("generate", "--model", model, "--prompt", "a", "--prompts", file, "--max-tokens", 4, "--json")
    assert result.exit_code == 0, result.stderr
    assert objects(result) == [
        {"index": 0, "prompt": "a", "token_ids": [98, 99, 100, 101], "text": "bcde", "finish_reason": "length"},
        {"index": 1, "prompt": "yéw", "token_ids": [120, 121, 122, 0], "text": "xyz", "finish_reason": "stop"},
        {"index": 2, "prompt": "m", "token_ids": [110, 111, 112, 113], "text": "nopq", "finish_reason": "length"},
    ]
    assert "a model's code may print" in result.stderr


def test_the_order_is_the_prompts_also_when_the_first_ends_last(invoke: Invoke, model: Path) -> None:
    result = invoke("generate", "--model", model, "--prompt", "a", "--prompt", "y", "--max-tokens", 9, "--json")
    assert [(found["index"], found["text"]) for found in objects(result)] == [(0, "bcdefghij"), (1, "z")]


def test_ignore_eos_and_stop_texts(invoke: Invoke, model: Path) -> None:
    result = invoke("generate", "--model", model, "--prompt", "y", "--max-tokens", 3, "--ignore-eos", "--json")
    assert objects(result)[0]["token_ids"] == [122, 0, 1]
    result = invoke("generate", "--model", model, "--prompt", "a", "--stop", "zz", "--stop", "de", "--json")
    assert (objects(result)[0]["text"], objects(result)[0]["finish_reason"]) == ("bc", "stop")


def test_a_seed_makes_draws_repeatable(invoke: Invoke, model: Path) -> None:
    drawn = ("generate", "--model", model, "--prompt", "a", "--temperature", 5, "--top-k", 50, "--top-p", 0.9, "--json")
    first, again, other = (invoke(*drawn, "--seed", seed) for seed in (1, 1, 2))
    assert objects(first) == objects(again) != objects(other)


def test_the_summary_goes_to_stderr(invoke: Invoke, model: Path) -> None:
    prompts = ("--prompt", "a" * 33, "--prompt", "b")
    result = invoke("generate", "--model", model, *prompts, "--max-tokens", 2, "--block-size", 4, "--num-blocks", 32)
    summary = result.stderr.splitlines()[-1]
    assert summary.startswith("2 prompts, 4 tokens in ")
    assert "tokens/s; 2 steps, 0 preemptions, 0 cached tokens" in summary
    # Two layers, pages of 4 tokens x 2 heads x 4 elements x 4 bytes x 2.
    assert summary.endswith("KV cache: 32 blocks of 4 tokens, 16.0 KiB")


def test_a_failing_request_leaves_the_others_alone(invoke: Invoke, model: Path) -> None:
    prompts = ("--prompt", "a", "--prompt", "b!", "--prompt", "%", "--prompt", "c")
    result = invoke("generate", "--model", model, *prompts, "--max-tokens", 2, "--json")
    assert result.exit_code == 1
    found = objects(result)
    assert [each["text"] for each in found] == ["bc", "", "", "de"]
    assert [each["finish_reason"] for each in found] == ["length", "error", "error", "length"]
    assert ["error" in each for each in found] == [False, True, True, False]
    assert "error: --prompt #2: RuntimeError: the model met an exclamation mark" in result.stderr
    assert "error: --prompt #3: the logits have no finite maximum" in result.stderr


def test_the_default_model_is_the_first_loaders_that_has_one(
    invoke: Invoke, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_DEFAULT_MODEL", str(model))
    result = invoke("generate", "--prompt", "a", "--max-tokens", 1)
    assert (result.exit_code, result.stdout) == (0, "b\n"), result.stderr
    assert "bringing the tiny model" in result.stderr


def test_preemption_and_no_prefix_caching_change_no_text(invoke: Invoke, model: Path) -> None:
    prompts = ("--prompt", "abcdefgh", "--prompt", "abcdefgi", "--max-tokens", 8, "--json", "--block-size", 2)
    plain = invoke("generate", "--model", model, *prompts)
    tight = invoke("generate", "--model", model, *prompts, "--num-blocks", 10, "--no-prefix-caching")
    assert objects(plain) == objects(tight)
    assert " 0 preemptions" not in tight.stderr


def test_a_back_end_can_be_asked_for(invoke: Invoke, model: Path) -> None:
    result = invoke("generate", "--model", model, "--prompt", "a", "--max-tokens", 1, "--backend", "tiny_dense")
    assert (result.exit_code, result.stdout) == (0, "b\n"), result.stderr


def test_defaults_are_those_of_the_library() -> None:
    defaults = {name: parameter.default for name, parameter in inspect.signature(generate).parameters.items()}
    options, params = EngineOptions(), SamplingParams()
    for name in ("block_size", "num_blocks", "max_num_batched_tokens", "max_num_seqs"):
        assert defaults[name] == getattr(options, name), name
    assert defaults["no_prefix_caching"] is not options.enable_prefix_caching
    for name in ("max_tokens", "temperature", "top_k", "top_p", "seed", "ignore_eos"):
        assert defaults[name] == getattr(params, name), name
