"""Runs under the peer's Python: vLLM's state-space builders, for each line on stdin one answer, as JSON on stdout.

    python vllm_state_build.py MODEL_FOLDER

The configuration is the one that vLLM makes itself for the model in the folder, a small Bamba. Builders are constructed
by hand, all for one spec, since what they build does not depend on the shapes of a state. A question names a builder,
the rows of a batch and a number of iterations; the answer holds the fields that this library's metadata has, too, and,
if iterations were asked for, the microseconds of one ``build()``.
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
    """Make the builders and serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints goes to stderr
    import torch
    from batches import Batch, microseconds
    from state_fields import SHAPES, shown, state_rows
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.envs import enable_envs_cache
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadataBuilder
    from vllm.v1.attention.backends.linear_attn import (
        BailingLinearAttentionMetadataBuilder,
        LinearAttentionMetadataBuilder,
    )
    from vllm.v1.attention.backends.mamba1_attn import Mamba1AttentionMetadataBuilder
    from vllm.v1.attention.backends.mamba2_attn import Mamba2AttentionMetadataBuilder
    from vllm.v1.attention.backends.short_conv_attn import ShortConvAttentionMetadataBuilder
    from vllm.v1.kv_cache_interface import MambaSpec

    torch.set_num_threads(1)
    config = EngineArgs(
        model=sys.argv[1], skip_tokenizer_init=True, dtype="float32", max_model_len=1024, max_num_seqs=1024
    ).create_engine_config()

    def spec(name: str) -> MambaSpec:
        shapes = SHAPES[name]
        return MambaSpec(block_size=1024, shapes=shapes, dtypes=(torch.float32,) * len(shapes))

    def common(batch: Batch) -> CommonAttentionMetadata:
        query_lens = torch.diff(batch.query_start_loc)
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
            # As its runner says it: a row whose prompt is not computed yet. Here every decode brings one token.
            is_prefilling=(query_lens > 1) | (batch.num_computed_tokens == 0),
        )

    kinds = {
        "mamba1": Mamba1AttentionMetadataBuilder,
        "mamba2": Mamba2AttentionMetadataBuilder,
        "gdn": GDNAttentionMetadataBuilder,
        "linear": LinearAttentionMetadataBuilder,
        "bailing_linear": BailingLinearAttentionMetadataBuilder,
        "short_conv": ShortConvAttentionMetadataBuilder,
    }
    with set_current_vllm_config(config):
        builders = {name: kind(spec(name), ["layer"], config, torch.device("cpu")) for name, kind in kinds.items()}
        enable_envs_cache()
        print(json.dumps({"builders": list(builders)}), file=answers, flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            batch = common(state_rows([tuple(row) for row in asked["rows"]]))
            build = functools.partial(builders[asked["builder"]].build, 0, batch)
            answer = {"fields": shown(build(), asked["builder"])}
            if asked["iterations"]:
                answer["microseconds"] = microseconds(build, asked["iterations"])
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
