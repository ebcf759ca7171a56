"""Prefills of a Gemma 3n with and without skipping tokens in the layers that share caches, taking turns in one process.

The model has random weights and the layers of Gemma 3n E4B (35, of which the last 15 share), at a quarter of its width.
Each side is given the same prompts, one token is generated for each, and the tokens are compared.

    PYTHONPATH=tests/support python tests/bench/fast_prefill.py [--rounds 5] [--threads 2]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence

import torch
from tiny_models import IdTokenizer
from transformers import Gemma3nForCausalLM, Gemma3nTextConfig

from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, build_engine
from genericbuilders.model import LoadedModel
from genericbuilders_transformers.model import TransformersModel

VOCAB_SIZE = 1024
NUM_PROMPTS = 4
BUDGET = 512
SIZES = (64, 256)


def make_engine(fast: bool) -> Engine:
    """The same weights on every call."""
    torch.random.set_rng_state(torch.Generator().manual_seed(0).get_state())
    config = Gemma3nTextConfig(
        vocab_size=VOCAB_SIZE,
        vocab_size_per_layer_input=VOCAB_SIZE,
        hidden_size=512,
        hidden_size_per_layer_input=64,
        intermediate_size=4096,
        num_hidden_layers=35,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=64,
        num_kv_shared_layers=15,
        max_position_embeddings=2048,
    )
    model = TransformersModel(Gemma3nForCausalLM(config), block_size=16, fast_prefill=fast)
    options = EngineOptions(max_num_batched_tokens=BUDGET, max_num_seqs=NUM_PROMPTS, enable_prefix_caching=False)
    return build_engine(LoadedModel(model, IdTokenizer()), options)


def prefill(engine: Engine, prompts: Sequence[list[int]]) -> tuple[float, list[tuple[int, ...]]]:
    """The seconds of all prompts, and the token behind each."""
    start = time.perf_counter()
    completions = engine.generate(prompts, SamplingParams(max_tokens=1))
    return time.perf_counter() - start, [completion.token_ids for completion in completions]


def main() -> None:
    """Print a row for each length of prompts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    slow, fast = make_engine(fast=False), make_engine(fast=True)
    choose = random.Random(0)
    print("prompts | all tokens, s | fast prefill, s | all / fast")
    for size in SIZES:
        prompts = [[choose.randrange(VOCAB_SIZE) for _ in range(size)] for _ in range(NUM_PROMPTS)]
        pairs = [(prefill(slow, prompts), prefill(fast, prompts)) for _ in range(1 + arguments.rounds)][1:]
        if any(before[1] != after[1] for before, after in pairs):
            raise SystemExit(f"tokens differ for prompts of {size} tokens")
        times = [statistics.median(side[0] for side in sides) for sides in zip(*pairs, strict=True)]
        ratio = statistics.median(before[0] / after[0] for before, after in pairs)
        print(f"{NUM_PROMPTS} of {size} tokens | {times[0]:.3f} | {times[1]:.3f} | {ratio:.2f}")


if __name__ == "__main__":
    main()
