"""What ``generate`` says about its caches: on stderr, before the run, and where there is something to see."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cli_plugin import LOADER, TinyTokenizer
from hash_model import HashModel, attention_spec, expected_tokens, state_spec
from typer.testing import Result

from genericbuilders.cache import plan_caches
from genericbuilders.cli.plan_table import show_cache_plan
from genericbuilders.config import EngineConfig
from genericbuilders.model import LoadedModel, LoadOptions
from genericbuilders.specs import KVCacheGroupSpec, KVCacheSpec, SlidingWindowSpec

Invoke = Callable[..., Result]


@pytest.fixture
def hybrid(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[KVCacheSpec]], None]:
    """Lets the loader give a model with caches of these specs."""

    def use(specs: Sequence[KVCacheSpec]) -> None:
        def load(self: object, path: Path, options: LoadOptions) -> LoadedModel:
            return LoadedModel(HashModel(specs), TinyTokenizer())

        monkeypatch.setattr(type(LOADER), "load", load)

    return use


# Pages of 256 bytes and of 1,000.
SPECS: list[KVCacheSpec] = [attention_spec(), state_spec("none", num_bytes=1000), state_spec("none", num_bytes=1000)]
RUN = ("--prompt", "ABC", "--max-tokens", 2, "--ignore-eos", "--block-size", 4)


def cells(result: Result) -> list[list[str]]:
    """The table's rows."""
    rows = [line for line in result.stderr.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in rows]


def test_a_model_with_more_than_one_group_shows_its_plan(
    invoke: Invoke, model: Path, hybrid: Callable[[Sequence[KVCacheSpec]], None]
) -> None:
    hybrid(SPECS)
    result = invoke("generate", "--model", model, *RUN, "--num-blocks", 49, "--max-num-seqs", 5, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["token_ids"] == expected_tokens(SPECS, list(b"ABC"), 2)
    # 48 blocks are two requests of 96 tokens, so three of the five states are idle with such.
    assert cells(result) == [
        ["0", "1: layers.0", "FullAttentionSpec", "4", "256", "49", "0.01", "0 B (0.0 %)"],
        ["1", "2: layers.1, ...", "MambaSpec", "4", "1000", "6", "0.01", "6000 B (50.0 %)"],
    ]
    assert "own pools: 0.02 MiB in all, of which 6000 B (24.4 %) hold nothing with 2 requests of full" in result.stderr
    assert result.stderr.index("cache plan") < result.stderr.index("1 prompt, 2 tokens in")
    assert result.stderr.rstrip().endswith("KV cache: 49 blocks of 4 tokens + 6 states, 24.0 KiB")


def test_one_group_is_shown_if_that_is_asked_for(invoke: Invoke, model: Path) -> None:
    quiet = invoke("generate", "--model", model, *RUN)
    assert (quiet.exit_code, quiet.stdout) == (0, "DE\n")
    assert "cache plan" not in quiet.stderr
    shown = invoke("generate", "--model", model, *RUN, "--num-blocks", 20, "--show-cache-plan")
    assert (shown.exit_code, shown.stdout) == (0, "DE\n")
    assert cells(shown) == [["0", "2: layers.0, ...", "FullAttentionSpec", "4", "256", "20", "0.01", "0 B (0.0 %)"]]


def test_without_a_limit_the_other_strategy_is_told(
    invoke: Invoke, model: Path, hybrid: Callable[[Sequence[KVCacheSpec]], None]
) -> None:
    hybrid(SPECS)
    result = invoke("generate", "--model", model, *RUN, "--max-num-seqs", 3)
    assert result.exit_code == 0, result.stderr
    assert [row[5] for row in cells(result)] == ["73", "4"]
    assert "0 B (0.0 %) hold nothing with 3 requests of full length; one pool would waste" in result.stderr


def test_windows_run_with_and_without_the_hybrid_manager(
    invoke: Invoke, model: Path, hybrid: Callable[[Sequence[KVCacheSpec]], None]
) -> None:
    full = attention_spec()
    window = SlidingWindowSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=full.dtype, sliding_window=2)
    specs = [full, window, state_spec("none")]
    hybrid(specs)
    for option, kind in (((), "SlidingWindowSpec"), (("--no-hybrid-kv-cache",), "FullAttentionSpec")):
        result = invoke("generate", "--model", model, *RUN, *option, "--json")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["token_ids"] == expected_tokens(specs, list(b"ABC"), 2)
        assert [row[2] for row in cells(result)] == ["FullAttentionSpec", kind, "MambaSpec"]


def test_states_larger_than_the_machine(
    invoke: Invoke, model: Path, hybrid: Callable[[Sequence[KVCacheSpec]], None]
) -> None:
    hybrid([attention_spec(), state_spec("none", num_bytes=2**40)])
    result = invoke("generate", "--model", model, *RUN, "--num-blocks", 10, "--max-num-seqs", 64)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: the states of --max-num-seqs 64 requests need 65.0 TiB of cache" in result.stderr
    result = invoke("generate", "--model", model, *RUN)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "bytes are too few for caches" in result.stderr
    hybrid(SPECS)
    result = invoke("generate", "--model", model, *RUN, "--num-blocks", 10**12, "--max-num-seqs", 64)
    assert "(256 bytes a block in all attention layers together, and 127 KiB of states)" in result.stderr
    assert "so at most" in result.stderr


def test_a_model_of_states_alone_is_told_that_blocks_do_nothing(
    invoke: Invoke, model: Path, hybrid: Callable[[Sequence[KVCacheSpec]], None]
) -> None:
    hybrid([state_spec("none")])
    told = "--num-blocks changes nothing: the model has no attention layers"
    assert told in invoke("generate", "--model", model, *RUN, "--num-blocks", 7).stderr
    assert told not in invoke("generate", "--model", model, *RUN).stderr


def test_the_length_of_a_request_decides_what_it_needs(
    invoke: Invoke, model: Path, hybrid: Callable[[Sequence[KVCacheSpec]], None]
) -> None:
    hybrid(SPECS)
    result = invoke("generate", "--model", model, *RUN, "--max-num-seqs", 3, "--max-model-len", 8)
    assert result.exit_code == 0, result.stderr
    assert [row[5] for row in cells(result)] == ["7", "4"]
    refused = invoke("generate", "--model", model, *RUN, "--max-model-len", 10**6)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "error: max_model_len is 1000000; the model's positions reach 96" in refused.stderr
    refused = invoke("generate", "--model", model / "missing", *RUN, "--max-model-len", 0)
    assert "error: max_model_len is 0; it must be at least 1" in refused.stderr


@pytest.mark.parametrize(("width", "lines"), [(40, 2), (89, 2), (90, 0)])
def test_on_a_narrow_terminal_no_word_is_broken(
    width: int, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    groups = [
        KVCacheGroupSpec(("layers.0",), attention_spec()),
        KVCacheGroupSpec(("layers.1", "layers.2"), state_spec("none", num_bytes=1000)),
    ]
    config = EngineConfig(max_model_len=96, max_num_seqs=3, block_size=4)
    show_cache_plan(plan_caches(groups, config, 10**9, may_share=True))
    shown = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("cache group") for line in shown) == lines
    if lines:
        assert shown[1].startswith(
            "cache group 1: layers 2: layers.1, ..., spec MambaSpec, block size 4, page bytes 1000"
        )
