"""Tokens a second of the engine beside transformers, vLLM and the model's linear layers alone, in one run.

The sides take turns, so that a busy machine slows them alike; figures are medians over the rounds, compared by ratio.

    python tests/bench/throughput.py [--rounds 5] [--peer-python .venv-peer/bin/python]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from prompts import NUM_NEW_TOKENS, make_prompts
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, build_engine
from genericbuilders.kernels.linear import PackedLinear
from genericbuilders.model import LoadOptions
from genericbuilders_transformers.default_model import ensure_default_model
from genericbuilders_transformers.model import load_transformers_model

PEER = Path(__file__).parent / "peers" / "vllm_throughput.py"
BUDGET = 512


class Ours:
    """This library's engine."""

    def __init__(self, path: Path, prompts: Sequence[str]) -> None:
        loaded = load_transformers_model(path, LoadOptions(torch.device("cpu"), torch.float32))
        options = EngineOptions(max_num_batched_tokens=BUDGET, enable_prefix_caching=False, max_model_len=1024)
        self.engine: Engine = build_engine(loaded, options)
        self.prompts = prompts

    def __call__(self) -> list[list[int]]:
        params = SamplingParams(max_tokens=NUM_NEW_TOKENS, ignore_eos=True)
        return [list(completion.token_ids) for completion in self.engine.generate(self.prompts, params)]


class Transformers:
    """transformers' own generation, all prompts in one static batch, padded on the left."""

    def __init__(self, path: Path, prompts: Sequence[str]) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        self.tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
        encoded = self.tokenizer(list(prompts), return_tensors="pt", padding=True)
        self.input_ids, self.attention_mask = encoded["input_ids"], encoded["attention_mask"]

    @torch.inference_mode()
    def __call__(self) -> list[list[int]]:
        out = self.model.generate(
            input_ids=self.input_ids,
            attention_mask=self.attention_mask,
            do_sample=False,
            min_new_tokens=NUM_NEW_TOKENS,
            max_new_tokens=NUM_NEW_TOKENS,
        )
        return [[int(token) for token in row] for row in out[:, self.input_ids.shape[1] :].numpy()]


class Linears:
    """Only the linear layers, on as many rows as the engine feeds: prompts in chunks of the budget, then each decode."""

    def __init__(self, model: PreTrainedModel, prompt_lens: Sequence[int], pack: bool) -> None:
        weights = [
            module.weight for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and name != "lm_head"
        ]
        # Projections that read the same input run as one, as the engine runs them.
        groups: list[list[torch.Tensor]] = []
        for name, module in model.named_modules():
            if not isinstance(module, torch.nn.Linear) or name == "lm_head":
                continue
            joined = name.endswith(("k_proj", "v_proj", "up_proj"))
            (groups[-1].append if joined and groups else lambda weight: groups.append([weight]))(module.weight)
        assert sum(len(group) for group in groups) == len(weights)
        self.layers = [PackedLinear(torch.cat(group), pack=pack) for group in groups]
        self.head = PackedLinear(model.get_output_embeddings().weight, pack=pack)
        chunks = [BUDGET] * (sum(prompt_lens) // BUDGET) + [sum(prompt_lens) % BUDGET]
        self.rows = [(chunk, len(prompt_lens) // len(chunks)) for chunk in chunks]
        self.rows += [(len(prompt_lens), len(prompt_lens))] * (NUM_NEW_TOKENS - 1)
        sizes = {layer.in_features for layer in self.layers}
        self.inputs = {(size, rows): torch.randn(rows, size) for size in sizes for rows, _ in self.rows}
        self.head_inputs = {rows: torch.randn(rows, self.head.in_features) for _, rows in self.rows}

    @torch.inference_mode()
    def __call__(self) -> None:
        for rows, head_rows in self.rows:
            for layer in self.layers:
                layer(self.inputs[layer.in_features, rows])
            self.head(self.head_inputs[head_rows])


class Peer:
    """vLLM's CPU build, compiled, in a process and an environment of its own."""

    def __init__(self, stack: ExitStack, python: str, path: Path, prompts: Sequence[str]) -> None:
        command = [python, str(PEER), str(path), json.dumps(list(prompts)), str(NUM_NEW_TOKENS)]
        self.process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        )
        stack.callback(self.process.terminate)
        self.threads = int(self._answer()["threads"])
        self.token_ids: list[list[int]] = []

    def __call__(self) -> float:
        """One generation's seconds, as the peer itself measures them."""
        if self.process.stdin is None:
            raise RuntimeError("the peer has no standard input")
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.token_ids = answer["token_ids"]
        return float(answer["seconds"])

    def _answer(self) -> dict[str, object]:
        ...


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
