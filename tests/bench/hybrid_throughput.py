"""Decoded tokens a second of a hybrid of about 100 M parameters: this engine beside transformers' static batch, in one run.

The model is a Bamba with random weights: 12 layers, 10 of them Mamba-2 and 2 attention. 32 requests of 8 tokens each get 1
and then 17 new tokens, greedy: the difference is the time of 16 decoding steps. Both sides run on the same weights in
float32; the sides take turns, and figures are medians over the rounds, compared by ratio.

    python tests/bench/hybrid_throughput.py [--rounds 3] [--threads 2]
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from tiny_models import IdTokenizer
from transformers import BambaConfig, BambaForCausalLM, PreTrainedModel

from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, build_engine
from genericbuilders.model import LoadedModel
from genericbuilders_transformers.model import TransformersModel

__all__ = ["main", "make_hybrid"]

NUM_REQUESTS, PROMPT_LEN, NUM_STEPS = 32, 8, 16
AIM = 3.0


def make_hybrid() -> PreTrainedModel:
    """The model, in float32."""
    config = BambaConfig(
        vocab_size=16_000,
        hidden_size=768,
        intermediate_size=1536,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        attn_layer_indices=[5, 11],
        mamba_n_heads=24,
        mamba_d_head=64,
        mamba_d_state=128,
        mamba_n_groups=1,
        mamba_chunk_size=256,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    torch.random.set_rng_state(torch.Generator().manual_seed(0).get_state())
    return BambaForCausalLM(config).eval()


class Ours:
    """This library's engine."""

    def __init__(self, model: PreTrainedModel, prompts: list[list[int]]) -> None:
        served = TransformersModel(model, block_size=16)
        options = EngineOptions(max_num_seqs=NUM_REQUESTS, enable_prefix_caching=False)
        self.engine = build_engine(LoadedModel(served, IdTokenizer()), options)
        self.prompts = prompts

    def __call__(self, num_tokens: int) -> tuple[float, list[list[int]]]:
        """The seconds of one generation, and its tokens."""
        params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
        start = time.perf_counter()
        completions = self.engine.generate(self.prompts, params)
        return time.perf_counter() - start, [list(completion.token_ids) for completion in completions]


class Transformers:
    """transformers' own generation, all prompts in one static batch."""

    def __init__(self, model: PreTrainedModel, prompts: list[list[int]]) -> None:
        self.model = model
        self.input_ids = torch.tensor(prompts)

    @torch.inference_mode()
    def __call__(self, num_tokens: int) -> tuple[float, list[list[int]]]:
        """The seconds of one generation, and its tokens."""
        start = time.perf_counter()
        out = self.model.generate(
            input_ids=self.input_ids,
            attention_mask=torch.ones_like(self.input_ids),
            do_sample=False,
            min_new_tokens=num_tokens,
            max_new_tokens=num_tokens,
        )
        seconds = time.perf_counter() - start
        return seconds, [[int(token) for token in row[PROMPT_LEN:]] for row in out]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = make_hybrid()
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randint(2, 16_000, (NUM_REQUESTS, PROMPT_LEN), generator=generator)
    prompts = [[int(token) for token in row] for row in drawn]
    theirs = Transformers(copy.deepcopy(model), prompts)
    ours = Ours(model, prompts)
    (_, expected), (_, made) = theirs(1 + NUM_STEPS), ours(1 + NUM_STEPS)
    equal = sum(mine == other for mine, other in zip(made, expected, strict=True))
    seconds: dict[str, list[float]] = {"transformers, one static batch": [], "this engine": []}
    sides: Sequence[Callable[[int], tuple[float, list[list[int]]]]] = (theirs, ours)
    for _ in range(arguments.rounds):
        for name, side in zip(seconds, sides, strict=True):
            prompts_alone, whole = side(1)[0], side(1 + NUM_STEPS)[0]
            seconds[name].append(whole - prompts_alone)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    print(
        f"torch {torch.__version__}, {arguments.threads} threads, {millions:.0f} M parameters, {NUM_REQUESTS} requests, "
        f"{NUM_STEPS} decoding steps; {equal} of {NUM_REQUESTS} requests got the same tokens; aim: {AIM} times\n"
    )
    print("| side | seconds of decoding | tokens/s | this engine's speed / its speed |")
    print("|---|---|---|---|")
    for name, value in medians.items():
        tokens = NUM_REQUESTS * NUM_STEPS / value
        print(f"| {name} | {value:.2f} | {tokens:.0f} | {value / medians['this engine']:.2f} |")


if __name__ == "__main__":
    main()
