"""Attention over a prefix that all requests share: once for all of them, against once for each; in one run.

Three tables: decoding attention by the number of requests and the length of the prefix, whole engine steps, and what it
takes to look for a prefix. Sides take turns; a sample is the fastest call within its time, and figures are medians over
the rounds.

    python tests/bench/common_prefix.py [--rounds 5] [--threads 1]
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from batches import fastest
from tiny_models import IdTokenizer
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from genericbuilders.backends.flash_attn import CPU_PREFIX_RULE, FLASH_ATTN, FlashAttentionImpl
from genericbuilders.config import AttentionLayerConfig, CommonPrefixRule, EngineConfig
from genericbuilders.engine.common_prefix import CommonPrefixes
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import SamplingParams
from genericbuilders.engine.setup import EngineOptions, build_engine
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.model import LoadedModel
from genericbuilders.specs import FullAttentionSpec
from genericbuilders_transformers.model import TransformersModel

__all__ = ["Heads", "main", "prepare"]

BLOCK_SIZE = 16
# Tokens behind the prefix, the new one included.
SUFFIX = 32
VOCAB_SIZE = 1000


class Heads(NamedTuple):
    """Query heads, key-value heads and the size of a head."""

    query: int
    kv: int
    size: int


def prepare(heads: Heads, num_reqs: int, prefix: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """One layer's decoding attention over a filled cache: once for each request, and once for all.

    Raises:
        RuntimeError: the two do not compute the same.
    """
    config = AttentionLayerConfig(heads.query, heads.kv, heads.size, heads.size**-0.5)
    layer = FLASH_ATTN.layer("layer", config)
    engine = EngineConfig(max_model_len=prefix + SUFFIX, layers={"layer": config})
    spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=heads.kv, head_size=heads.size, dtype=torch.float32)
    group = FLASH_ATTN.bind(spec, [layer], engine, torch.device("cpu"))
    shared, own = prefix // BLOCK_SIZE, SUFFIX // BLOCK_SIZE
    order = torch.randperm(shared + num_reqs * own, generator=torch.Generator().manual_seed(0)).to(torch.int32)
    table = torch.cat((order[:shared].expand(num_reqs, shared), order[shared:].view(num_reqs, own)), 1)
    starts = torch.arange(num_reqs + 1, dtype=torch.int32)
    lens = torch.full((num_reqs,), prefix + SUFFIX, dtype=torch.int32)
    common = CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lens,
        seq_lens_cpu=lens,
        num_computed_tokens_cpu=lens - 1,
        num_reqs=num_reqs,
        num_actual_tokens=num_reqs,
        max_query_len=1,
        max_seq_len=prefix + SUFFIX,
        block_table_tensor=table.contiguous(),
        slot_mapping=torch.full((num_reqs,), -1),
    )
    cache = torch.randn(group.kv_cache_shape(len(order)))
    query = torch.randn(num_reqs, heads.query, heads.size)
    impl = FlashAttentionImpl(config)
    kernels, keys, values = impl.open(cache)
    each, once = group.builder.build(0, common), group.builder.build(prefix, common)

    def for_each() -> Tensor:
        return impl.attend(kernels, query, keys, values, each)

    def for_all() -> Tensor:
        return impl.attend(kernels, query, keys, values, once)

    worst = float((for_each() - for_all()).abs().max())
    if worst > 1e-4:
        raise RuntimeError(f"the sides differ by up to {worst}; the times mean nothing")
    return for_each, for_all


def attention(rounds: int, seconds: float, rows: Sequence[int], prefixes: Sequence[int]) -> None:
    """The table of decoding attention: time for each / time for all."""
    for heads in (Heads(9, 3, 64), Heads(32, 8, 128)):
        print(
            f"\n{heads.query} query heads, {heads.kv} key-value heads of {heads.size}: once for each / once for all\n"
        )
        print(f"| requests | {' | '.join(f'{prefix:,} tokens' for prefix in prefixes)} |")
        print(f"|---|{'---|' * len(prefixes)}")
        for num_reqs in rows:
            told: list[str] = []
            for prefix in prefixes:
                for_each, for_all = prepare(heads, num_reqs, prefix)
                samples = [(fastest(for_each, seconds), fastest(for_all, seconds)) for _ in range(rounds)]
                ratio = statistics.median(each / once for each, once in samples)
                mean = [statistics.median(column) for column in zip(*samples, strict=True)]
                told.append(f"{ratio:.2f} ({mean[0]:.2f} / {mean[1]:.2f} ms)")
            print(f"| {num_reqs} | {' | '.join(told)} |", flush=True)


def engine(rule: CommonPrefixRule | None, prompts: Sequence[Sequence[int]]) -> Engine:
    """Six layers of SmolLM2-135M's size with random weights, and ``prompts`` fed through them."""
    torch.random.set_rng_state(torch.Generator().manual_seed(0).get_state())
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=6,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=16384,
        )
    ).eval()
    longest = max(map(len, prompts)) + 1024
    options = EngineOptions(
        block_size=BLOCK_SIZE,
        num_blocks=2 + sum(-(-(len(prompt) + 1024) // BLOCK_SIZE) for prompt in prompts),
        max_num_batched_tokens=2048,
        max_model_len=longest,
        common_prefix_rule=rule,
    )
    made = build_engine(LoadedModel(TransformersModel(model, block_size=BLOCK_SIZE), IdTokenizer()), options)
    # The first is fed alone, so that the others find its blocks.
    for index, prompt in enumerate(prompts):
        made.add_request(str(index), list(prompt), SamplingParams(max_tokens=1000, ignore_eos=True))
        if index == 0:
            while not made.stats.num_output_tokens:
                made.step()
    # Until all of them decode.
    while made.scheduler.waiting or any(request.num_uncomputed_tokens > 1 for request in made.scheduler.running):
        made.step()
    return made


def steps(rounds: int, cases: Sequence[tuple[str, int, int, int]]) -> None:
    """The table of engine steps: each side's time, and what looking for the prefix alone takes."""
    print("\n| prompts | step, once for each | step, by the rule | ratio | looking for the prefix |")
    print("|---|---|---|---|---|")
    for name, num_reqs, shared, own in cases:
        drawn = torch.randint(VOCAB_SIZE, (num_reqs, shared + own), generator=torch.Generator().manual_seed(1))
        drawn[:, :shared] = drawn[0, :shared]
        prompts: list[list[int]] = [[int(token) for token in row] for row in drawn]
        each, once = engine(CommonPrefixRule.never(), prompts), engine(None, prompts)
        samples = [(fastest(each.step, 0.5), fastest(once.step, 0.5)) for _ in range(rounds)]
        before, after = (statistics.median(column) for column in zip(*samples, strict=True))
        ratio = statistics.median(a / b for a, b in samples)
        finder = CommonPrefixes(once.runner.groups, once.runner.coordinator)
        ids = [str(index) for index in range(num_reqs)]
        shortest = shared + own
        found = finder.find(ids, shortest)
        looked = 1e3 * statistics.median(
            fastest(functools.partial(finder.find, ids, shortest), 0.1) for _ in range(rounds)
        )
        print(
            f"| {name} | {before:.2f} ms | {after:.2f} ms | {ratio:.2f} | {looked:.0f} us: {found[0]} tokens |",
            flush=True,
        )


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="of one sample of attention")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--prefixes", type=int, nargs="+", default=[128, 512, 2048, 8192])
    parser.add_argument("--skip", choices=["attention", "steps"], nargs="*", default=[])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} threads, float32, blocks of {BLOCK_SIZE}")
    print(f"the rule on CPUs: {CPU_PREFIX_RULE}")
    if "attention" not in arguments.skip:
        attention(arguments.rounds, arguments.seconds, arguments.rows, arguments.prefixes)
    if "steps" not in arguments.skip:
        cases = [
            ("32 requests, 2,048 tokens shared, 32 of their own", 32, 2048, 32),
            ("32 requests, 1,024 shared, 32 of their own", 32, 1024, 32),
            ("32 requests, nothing shared, 1,056 of their own", 32, 0, 1056),
            ("32 requests, 32 shared, 1,056 of their own", 32, 32, 1056),
        ]
        steps(arguments.rounds, cases)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
