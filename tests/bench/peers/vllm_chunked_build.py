"""Runs under the peer's Python: times vLLM's chunked-local builder, one sample for each line on stdin.

    python vllm_chunked_build.py MODEL_FOLDER

Its chunked back end is made of its FlashAttention one, as its layer makes it; see `vllm_build.py` for what a CPU build lacks.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main() -> None:
    """Make the builder and serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints goes to stderr
    import torch
    from batches import BATCHES, BLOCK_SIZE, fingerprint, make_batch, microseconds
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.layers.attention.chunked_local_attention import create_chunked_local_attention_backend
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend
    from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec

    torch.set_num_threads(1)
    chunk_size = int(sys.argv[2])
    config = EngineArgs(
        model=sys.argv[1], dtype="float32", max_model_len=1024, max_num_seqs=1024
    ).create_engine_config()
    spec = ChunkedLocalAttentionSpec(
        block_size=BLOCK_SIZE,
        num_kv_heads=config.model_config.get_num_kv_heads(config.parallel_config),
        head_size=config.model_config.get_head_size(),
        dtype=torch.float32,
        attention_chunk_size=chunk_size,
    )
    kind = create_chunked_local_attention_backend(FlashAttentionBackend, chunk_size).get_builder_cls()
    batches = {}
    for name, rows in BATCHES.items():
        batch = make_batch(rows)
        batches[name] = CommonAttentionMetadata(
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
    with set_current_vllm_config(config):
        builder = kind(spec, ["layer"], config, torch.device("cpu"))
        print(json.dumps({"builder": kind.__name__}), file=answers, flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            build = functools.partial(builder.build, 0, batches[asked["batch"]])
            made = build()
            answer = {
                "microseconds": microseconds(build, asked["iterations"]),
                "fingerprint": fingerprint(
                    (int(made.num_actual_tokens), int(made.max_query_len)), (made.query_start_loc, made.seq_lens)
                ),
            }
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
