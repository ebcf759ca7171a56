"""Runs under the peer's Python: times vLLM's builders, one sample for each line on stdin, as JSON on stdout.

    python vllm_build.py MODEL_FOLDER

The configuration is the one that vLLM makes itself for that model. What a CPU build lacks:

* ``FlashAttentionMetadataBuilder`` is never chosen there, so it is constructed by hand. Its module imports, and nothing
  in it is replaced: without flash-attn's kernels ``get_flash_attn_version()`` is ``None``, which is the path of
  version 2, without ahead-of-time scheduling. On Hopper (version 3) its ``build()`` launches a kernel more.
* No layer is registered with the configuration, since no model is made: the query heads come from the model's
  configuration, and the CPU builder sees no window. Both are read in the constructors only.

The environment variables that ``build()`` looks up are cached first, as vLLM does when its engine has started.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import traceback
from pathlib import Path

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main() -> None:
    """Make the builders, say which could be made, and serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints goes to stderr
    import torch
    from batches import BATCHES, BLOCK_SIZE, Batch, fingerprint, make_batch, microseconds
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.envs import enable_envs_cache
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder
    from vllm.v1.attention.backends.flash_attn import FlashAttentionMetadataBuilder
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    torch.set_num_threads(1)
    config = EngineArgs(
        model=sys.argv[1], dtype="float32", max_model_len=1024, max_num_seqs=1024
    ).create_engine_config()
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE,
        num_kv_heads=config.model_config.get_num_kv_heads(config.parallel_config),
        head_size=config.model_config.get_head_size(),
        dtype=torch.float32,
    )

    def common(batch: Batch) -> CommonAttentionMetadata:
        return CommonAttentionMetadata(
            query_start_loc=batch.query_start_loc,
            query_start_loc_cpu=batch.query_start_loc,
            seq_lens=batch.seq_lens,
            seq_lens_cpu_upper_bound=batch.seq_lens,
            num_reqs=batch.num_reqs,
            num_actual_tokens=batch.num_actual_tokens,
            max_query_len=batch.max_query_len,
            max_seq_len=batch.max_seq_len,
            block_table_tensor=batch.block_table,
            slot_mapping=batch.slot_mapping,
        )

    batches = {name: common(make_batch(rows)) for name, rows in BATCHES.items()}
    builders, stops = {}, {}
    with set_current_vllm_config(config):
        for builder in (FlashAttentionMetadataBuilder, CPUAttentionMetadataBuilder):
            try:
                made = builder(spec, ["layer"], config, torch.device("cpu"))
                made.build(0, next(iter(batches.values())))
                builders[builder.__name__] = made
            except Exception:  # shown to whoever measures
                stops[builder.__name__] = traceback.format_exc(limit=-1)
        enable_envs_cache()
        print(json.dumps({"builders": list(builders), "stops": stops}), file=answers, flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            build = functools.partial(builders[asked["builder"]].build, 0, batches[asked["batch"]])
            made = build()
            answer = {
                "microseconds": microseconds(build, asked["iterations"]),
                "fingerprint": fingerprint(
                    (made.num_actual_tokens, made.max_query_len, made.max_seq_len),
                    (made.query_start_loc, made.seq_lens, made.block_table, made.slot_mapping),
                ),
            }
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
