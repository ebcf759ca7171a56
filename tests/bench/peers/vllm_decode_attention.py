"""Runs under the peer's Python: times vLLM's attention kernel for CPUs, for each line on stdin one answer, as JSON.

    python vllm_decode_attention.py

A question names a shape (`decode_inputs.Shape`) and the seconds of a sample; 0 seconds only makes the inputs and computes
once. The first answer names the instruction set that vLLM would choose. The kernel is called as vLLM's CPU back end calls it, on a cache that
vLLM's own function has filled; the schedule that its builder makes once for all layers is not counted.
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from pathlib import Path

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main() -> None:
    """Serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints goes to stderr
    import torch
    from decode_inputs import DTYPES, Shape, make_inputs, milliseconds, sample
    from vllm import _custom_ops as ops
    from vllm import envs
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    current_platform.import_kernels()

    def prepare(shape: Shape) -> functools.partial[None]:
        """The call on a filled cache."""
        inputs, dtype = make_inputs(shape), DTYPES[shape.dtype]
        isa = _get_attn_isa(dtype, shape.block_size, shape.head_size)
        num_blocks = inputs.block_table.numel()
        cache = torch.zeros(num_blocks, shape.num_kv_heads, shape.block_size * 2, shape.head_size, dtype=dtype)
        key_cache, value_cache = cache.chunk(2, dim=2)
        ops.cpu_attn_reshape_and_cache(inputs.keys, inputs.values, key_cache, value_cache, inputs.slot_mapping, isa)
        starts = torch.arange(shape.num_reqs + 1, dtype=torch.int32)
        seq_lens = torch.full((shape.num_reqs,), shape.context, dtype=torch.int32)
        window = shape.window or -1
        schedule = ops.cpu_attn_get_scheduler_metadata(
            num_reqs=shape.num_reqs,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_size,
            seq_lens=seq_lens,
            dtype=dtype,
            query_start_loc=starts,
            causal=True,
            sliding_window_size=window,
            isa=isa,
            enable_kv_split=envs.VLLM_CPU_ATTN_SPLIT_KV,
        )
        return functools.partial(
            ops.cpu_attention_with_kv_cache,
            query=inputs.query,
            key_cache=key_cache,
            value_cache=value_cache,
            output=torch.empty_like(inputs.query),
            query_start_loc=starts,
            seq_lens=seq_lens,
            scale=1 / math.sqrt(shape.head_size),
            causal=True,
            alibi_slopes=None,
            sliding_window=window,
            block_table=inputs.block_table,
            softcap=0,
            scheduler_metadata=schedule,
            s_aux=None,
        )

    print(json.dumps({"isa": _get_attn_isa(torch.float32, 128, 128)}), file=answers, flush=True)
    prepared: tuple[Shape, functools.partial[None]] | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        shape = Shape(**asked["shape"])
        if prepared is None or prepared[0] != shape:
            prepared = None  # the old cache goes first
            prepared = shape, prepare(shape)
        call = prepared[1]
        call()
        answer: dict[str, object] = {"sample": sample(call.keywords["output"])}
        if asked["seconds"]:
            answer["milliseconds"] = milliseconds(call, asked["seconds"])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
