"""SmolLM2 on every quantised cache: how often it chooses the token that it chooses on a plain one, and how fast.

The engine first generates on a plain cache, greedily. Then, for each mode, it generates again, which goes its own way
after the first other token; and the plain cache's text is fed to the model on the quantised one, which is asked for the
next token at each place of it. The plain cache runs again before each mode, so that a busy machine slows both alike.

    PYTHONPATH=tests/support python tests/bench/quantised_tokens.py [--threads 2] [--tokens 64]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import torch
from attention_batches import make_batch
from prompts import make_prompts

from genericbuilders.adapter import Step
from genericbuilders.backends.quantised import QUANTISED
from genericbuilders.cache import allocate_kv_caches
from genericbuilders.config import EngineConfig
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, bind_groups, build_engine
from genericbuilders.kernels.quant.formats import FORMATS
from genericbuilders.model import ForwardContext, LoadedModel, LoadOptions, Model
from genericbuilders.specs import AttentionSpec, KVQuantMode
from genericbuilders_transformers.default_model import ensure_default_model
from genericbuilders_transformers.model import load_transformers_model

BLOCK_SIZE = 16


def load(mode: KVQuantMode) -> LoadedModel:
    """The model in float32 with caches in a mode."""
    return load_transformers_model(
        ensure_default_model(), LoadOptions(torch.device("cpu"), torch.float32, BLOCK_SIZE, kv_cache_dtype=mode)
    )


def generate(loaded: LoadedModel, prompts: Sequence[Sequence[int]], num_tokens: int) -> tuple[list[list[int]], float]:
    """Each prompt's tokens, and the seconds of all."""
    options = EngineOptions(max_num_batched_tokens=512, enable_prefix_caching=False, max_model_len=1024)
    engine = build_engine(loaded, options)
    params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
    start = time.perf_counter()
    completions = engine.generate([list(prompt) for prompt in prompts], params)
    return [list(completion.token_ids) for completion in completions], time.perf_counter() - start


@torch.inference_mode()
def next_tokens(model: Model, token_ids: Sequence[int]) -> list[int]:
    """The token that the model would choose behind each of a text's tokens."""
    config = EngineConfig(
        max_model_len=1024, layers={placed.layer.name: placed.layer.config for placed in model.layers}
    )
    groups = bind_groups(model, config)
    common = make_batch([len(token_ids)], [0], BLOCK_SIZE)
    caches = allocate_kv_caches(groups, 1 + int(common.block_table_tensor.max()), model.device)
    step = Step()
    for group in groups:
        group.build(common, step)
    places = torch.arange(len(token_ids))
    logits = model.forward(torch.tensor(token_ids), places, ForwardContext(step, caches), places)
    return [int(token) for token in logits.argmax(-1)]


def token_bytes(model: Model) -> int:
    """The bytes of one token in all layers' caches."""
    specs = [placed.kv_cache_spec for placed in model.layers]
    return sum(spec.num_kv_heads * spec.state_content_size_bytes for spec in specs if isinstance(spec, AttentionSpec))


def same_at_front(one: Sequence[int], other: Sequence[int]) -> int:
    """The equal tokens before the first that differs."""
    return next((at for at, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), len(one))


def main() -> None:
    """Generate, compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    plain = load(KVQuantMode.NONE)
    prompts = [plain.tokenizer.encode(prompt) for prompt in make_prompts()]
    expected, _ = generate(plain, prompts, arguments.tokens)
    count = len(prompts) * arguments.tokens
    print(f"torch {torch.__version__}, {arguments.threads} threads, {len(prompts)} prompts, {count} tokens, greedy\n")
    print(
        "| mode | back end | bytes a token | same next token | same text, of all | same tokens before, median | time / plain |"
    )
    print("|---|---|---|---|---|---|---|")
    whole = token_bytes(plain.model)
    print(f"| none (float32) | flash_attn | {whole:,} | | | | 1.00 |", flush=True)
    for mode in FORMATS:
        loaded = load(mode)
        _, plain_seconds = generate(plain, prompts, arguments.tokens)
        tokens, seconds = generate(loaded, prompts, arguments.tokens)
        chosen = [
            next_tokens(loaded.model, [*prompt, *text])[len(prompt) - 1 : -1]
            for prompt, text in zip(prompts, expected, strict=True)
        ]
        agree = sum(
            one == other
            for row, text in zip(chosen, expected, strict=True)
            for one, other in zip(row, text, strict=True)
        )
        front = [same_at_front(one, other) for one, other in zip(tokens, expected, strict=True)]
        (adapter,) = {placed.layer.adapter.name for placed in loaded.model.layers} & {each.name for each in QUANTISED}
        print(
            f"| {mode.name.lower()} | {adapter} | {token_bytes(loaded.model):,} | {agree / count:.1%} | "
            f"{sum(same == arguments.tokens for same in front)} of {len(front)} | {statistics.median(front):.0f} | "
            f"{seconds / plain_seconds:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
