"""Runs under the peer's Python: vLLM's HPC builder, for each line on stdin one answer, as JSON on stdout.

    python vllm_hpc_build.py

The library itself is not needed to build metadata: a module in its place remembers what it is called with. A question
has the number of speculative tokens and the rows of a batch, ``[new tokens, length]`` each.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main() -> None:
    """Make the builders and serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints goes to stderr
    import torch

    calls: list[Any] = []

    def workspace(*sizes: int, min_process_len: int) -> torch.Tensor:
        calls.append(["workspace", *sizes, min_process_len])
        return torch.zeros(1)

    def assign(
        lengths: torch.Tensor, _: torch.Tensor, heads: int, tokens: int, *, new_kv_included: bool, min_process_len: int
    ) -> None:
        calls.append(["assign", lengths.tolist(), heads, tokens, new_kv_included, min_process_len])

    module = ModuleType("hpc")
    module.__dict__.update(get_attention_decode_task_workspace=workspace, assign_attention_decode_task=assign)
    sys.modules["hpc"] = module
    from batches import Batch
    from hpc_rows import hpc_batch, hpc_fields
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.attention.backends.hpc_attn import HpcAttnMetadataBuilder
    from vllm.v1.kv_cache_interface import FullAttentionSpec

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

    spec = FullAttentionSpec(block_size=64, num_kv_heads=2, head_size=128, dtype=torch.bfloat16)
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        drafts = asked["drafts"]
        config = SimpleNamespace(
            speculative_config=SimpleNamespace(num_speculative_tokens=drafts, parallel_drafting=False)
            if drafts
            else None,
            parallel_config=SimpleNamespace(decode_context_parallel_size=1),
            scheduler_config=SimpleNamespace(max_num_seqs=8),
            model_config=SimpleNamespace(max_model_len=512),
            num_speculative_tokens=drafts,
        )
        calls.clear()
        builder = HpcAttnMetadataBuilder(spec, ["layer"], config, torch.device("cpu"))
        built = builder.build(0, common(hpc_batch([tuple(row) for row in asked["rows"]])))
        support = HpcAttnMetadataBuilder.get_cudagraph_support(config, spec).name
        print(json.dumps({"fields": hpc_fields(built), "calls": calls, "support": support}), file=answers, flush=True)


if __name__ == "__main__":
    main()
