"""Latent attention over the draft tokens of decodes: absorbed, as decodes, against expanding their context; in one run.

One layer of DeepSeek-V2-Lite's size attends; each request brings its last token and the draft tokens behind it. What
the two compute is compared first. A sample is the fastest call within its time; the sides take turns, and figures are
medians over the rounds.

    python tests/bench/latent_drafts.py [--rounds 5] [--threads 1]
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Callable

import torch
from attention_here import common_of
from batches import BLOCK_SIZE, fastest, make_batch
from torch import Tensor

from genericbuilders.backends.mla import MLA, MLAInputs, MLAMetadataBuilder
from genericbuilders.config import EngineConfig, LatentLayerConfig
from genericbuilders.specs import MLAAttentionSpec

__all__ = ["main", "prepare"]

CPU = torch.device("cpu")
LAYER = LatentLayerConfig(
    num_heads=16, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, scale=192**-0.5
)


def prepare(num_reqs: int, drafts: int, seq_len: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """The same batch with the draft tokens as prefills, and as decodes.

    Raises:
        RuntimeError: the two do not compute the same.
    """
    common = common_of(make_batch([(1 + drafts, seq_len)] * num_reqs))
    size = LAYER.kv_lora_rank + LAYER.qk_rope_head_dim
    spec = MLAAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=size, dtype=torch.float32)
    tokens = common.num_actual_tokens
    up = torch.randn(LAYER.num_heads, LAYER.qk_nope_head_dim + LAYER.v_head_dim, LAYER.kv_lora_rank)
    query = torch.randn(tokens, LAYER.num_heads, LAYER.qk_nope_head_dim + LAYER.qk_rope_head_dim)
    inputs = MLAInputs(query, torch.randn(tokens, size), up * LAYER.kv_lora_rank**-0.5)
    cache = torch.randn(int(common.block_table_tensor.max()) + 1, BLOCK_SIZE, size)
    impl = MLA.layer("layer", LAYER).impl

    def attend(told: int) -> Callable[[], Tensor]:
        config = EngineConfig(max_model_len=seq_len, num_speculative_tokens=told, layers={"layer": LAYER})
        metadata = MLAMetadataBuilder(spec, ["layer"], config, CPU).build(0, common)
        if metadata.num_decodes != (num_reqs if told else 0):
            raise RuntimeError(f"{metadata.num_decodes} of {num_reqs} rows are decodes with {told} draft tokens")
        return functools.partial(impl.forward, inputs, kv_cache=cache, attn_metadata=metadata)

    expanded, absorbed = attend(0), attend(drafts)
    worst = float((expanded() - absorbed()).abs().max())
    if not worst <= 1e-4:
        raise RuntimeError(f"the sides differ by up to {worst}; the times mean nothing")
    return expanded, absorbed


def main() -> None:
    """Print the table: time with the context expanded / time absorbed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of calls in one sample")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    lengths = (512, 1024, 4096)
    print(f"| requests | draft tokens | {' | '.join(f'{length:,} tokens' for length in lengths)} |")
    print(f"|---|---|{'---|' * len(lengths)}")
    for num_reqs, drafts in ((1, 3), (4, 3), (16, 3), (4, 7)):
        told: list[str] = []
        for length in lengths:
            expanded, absorbed = prepare(num_reqs, drafts, length)
            samples = [
                (fastest(expanded, arguments.seconds), fastest(absorbed, arguments.seconds))
                for _ in range(arguments.rounds)
            ]
            ratio = statistics.median(first / second for first, second in samples)
            first, second = (statistics.median(column) for column in zip(*samples, strict=True))
            told.append(f"{ratio:.1f} ({first:.1f} / {second:.1f} ms)")
        print(f"| {num_reqs} | {drafts} | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
