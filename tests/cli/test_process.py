"""What only a process of its own shows: Ctrl-C, pipes, what is imported, tracebacks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., subprocess.Popen[str]]
# An interrupted command promises to be gone within a second; a shared machine may need more.
PATIENCE = 5.0


def interrupt(process: subprocess.Popen[str]) -> tuple[str, str, float]:
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    return stdout, stderr, time.monotonic() - begun


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Read stderr up to the line that contains ``text``."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    pytest.fail(f"no {text!r} on stderr")


@pytest.mark.parametrize("last", ["~", "&"], ids=["python code", "native code"])
def test_ctrl_c_prints_what_is_finished(start: Start, model: Path, last: str) -> None:
    # One sequence a step: the first is finished when the second begins, and the third never begins.
    prompts = ("--prompt", "a", "--prompt", last, "--prompt", "c", "--max-num-seqs", 1, "--max-tokens", 3)
    process = start("generate", "--model", model, *prompts, "--json")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    time.sleep(0.5)
    stdout, stderr, seconds = interrupt(process)
    assert first["text"] == "bcd"
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert "aborted: --prompt #2, --prompt #3" in stderr
    assert "Traceback" not in stderr
    assert seconds < PATIENCE


def test_ctrl_c_prints_results_that_wait_for_an_earlier_one(start: Start, model: Path, tmp_path: Path) -> None:
    # The second ends at "C", its second token; the first comes to "~" at its third one, and then steps take long.
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "{"}\n{"prompt": "A"}\n', encoding="utf-8")
    process = start("generate", "--model", model, "--prompts", file, "--stop", "C", "--max-tokens", 40, "--json")
    read_until(process, "loading")
    time.sleep(1.5)
    stdout, stderr, seconds = interrupt(process)
    assert process.returncode == 130, stderr
    assert [json.loads(line)["index"] for line in stdout.splitlines()] == [1]
    assert "aborted: " + str(file) + ":1" in stderr
    assert seconds < PATIENCE


def test_ctrl_c_ends_the_line_of_streamed_text(start: Start, model: Path) -> None:
    process = start("generate", "--model", model, "--prompt", "{", "--max-tokens", 9)
    assert process.stdout is not None
    assert process.stdout.read(3) == "|}~"
    stdout, stderr, seconds = interrupt(process)
    assert (process.returncode, stdout) == (130, "\n"), stderr
    assert seconds < PATIENCE


def test_ctrl_c_while_the_model_loads(start: Start, model: Path) -> None:
    (model / "slow").touch()
    process = start("generate", "--model", model, "--prompt", "a")
    read_until(process, "may print")
    time.sleep(0.2)
    stdout, stderr, seconds = interrupt(process)
    assert (process.returncode, stdout) == (130, ""), stderr
    assert "aborted: --prompt #1" in stderr
    assert "Traceback" not in stderr
    assert seconds < PATIENCE


def test_a_reader_that_has_seen_enough(start: Start, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n' * 20 + '{"prompt": "~"}\n', encoding="utf-8")
    process = start("generate", "--model", model, "--prompts", file, "--max-num-seqs", 1, "--json", "--max-tokens", 1)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    stderr = process.stderr.read()
    assert process.wait(timeout=30) == 141
    assert "Traceback" not in stderr
    assert "rror" not in stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_results_that_cannot_be_written(environment: dict[str, str], model: Path) -> None:
    command = [sys.executable, "-m", "genericbuilders.cli", "generate", "--model", str(model), "--prompt", "a"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: results cannot be written: No space left on device"


def test_an_unexpected_exception_shows_its_traceback(start: Start, model: Path) -> None:
    (model / "buggy").touch()
    process = start("generate", "--model", model, "--prompt", "a")
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (1, "")
    assert "Traceback" in stderr
    assert "ArithmeticError: a fault of the loader" in stderr


@pytest.mark.parametrize("arguments", [["--help"], ["generate", "--help"], ["backends", "--help"], ["--version"]])
def test_help_does_not_wait_for_torch(environment: dict[str, str], arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from genericbuilders.cli import main\n"
        f"sys.argv = ['genericbuilders', *{arguments!r}]\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "sys.stderr.write(' '.join({'torch', 'transformers', 'numpy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "genericbuilders" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra(environment: dict[str, str], missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from genericbuilders.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: the command line needs {missing}, which is not installed")
    assert "pip install 'genericbuilders[cli]'" in done.stderr
