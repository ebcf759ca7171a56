"""Runs under the peer's Python: answers each line on stdin with the seconds of one generation, as JSON on stdout."""

from __future__ import annotations

import json
import os
import sys
import time

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="2",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_NUM_OF_RESERVED_CPU="0",
    VLLM_LOGGING_LEVEL="ERROR",
)


def main() -> None:
    """Load the model, say so, and serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints goes to stderr
    model, prompts, num_tokens = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    from vllm import LLM, SamplingParams

    llm = LLM(model, dtype="float32", max_model_len=1024, enable_prefix_caching=False)
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    llm.generate(prompts, params, use_tqdm=False)
    print(json.dumps({"seconds": 0.0, "token_ids": []}), file=answers, flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        token_ids = [list(output.outputs[0].token_ids) for output in outputs]
        print(json.dumps({"seconds": seconds, "token_ids": token_ids}), file=answers, flush=True)


if __name__ == "__main__":
    main()
