"""Runs under the peer's Python: vLLM with a back end of this library inside, or with its own; JSON on stdout.

    python inside_vllm.py generate MODEL_FOLDER OPTIONS     one answer for each line of prompts on stdin
    python inside_vllm.py refuse MODEL_FOLDER FOLDERS       what vLLM says of layers and models that cannot be served

``OPTIONS`` are keywords of vLLM's ``LLM``, as JSON. Whether vLLM runs in worker processes of its own,
``VLLM_ENABLE_V1_MULTIPROCESSING`` says, which the caller sets. The plug-in is found through importlib.metadata, or not at
all: nothing here imports it before vLLM has.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_NUM_OF_RESERVED_CPU="0",
    VLLM_ALLOW_INSECURE_SERIALIZATION="1",
)


def watch(worker: object) -> None:
    """In the worker: count the calls of this library's implementations."""
    worker.inside_calls = 0
    for layer in worker.model_runner.compilation_config.static_forward_context.values():
        kind = type(layer.impl)
        if kind.__module__.startswith("genericbuilders_vllm.") and not hasattr(kind, "watched"):
            original = kind.forward

            def counted(*args: object, original: Callable[..., object] = original, **kwargs: object) -> object:
                worker.inside_calls += 1
                return original(*args, **kwargs)

            kind.forward, kind.watched = counted, True


def describe(worker: object) -> dict[str, object]:
    """In the worker: what runs there, and whether its caches are vLLM's own memory."""
    import os

    from vllm.platforms import current_platform

    runner = worker.model_runner
    layers = runner.compilation_config.static_forward_context
    groups = [group for groups in runner.attn_groups for group in groups]
    facts = {
        "pid": os.getpid(),
        "platform": type(current_platform).__name__,
        "impls": sorted({type(layer.impl).__name__ for layer in layers.values()}),
        "num_layers": len(layers),
        "builders": sorted({type(group.get_metadata_builder()).__name__ for group in groups}),
        "layout": str(runner.cache_config.kv_cache_layout),
        "calls": worker.inside_calls,
        "views": None,
    }
    if facts["builders"] == ["InsideBuilder"]:
        from genericbuilders_vllm.inside.convert import convert_cache

        bound = groups[0].get_metadata_builder().group
        caches = [(layer.kv_cache, convert_cache(layer.kv_cache)) for layer in layers.values()]
        facts["adapter"] = bound.adapter.name
        facts["views"] = all(
            theirs.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()
            and theirs.data_ptr() == ours.data_ptr()
            and tuple(ours.shape) == bound.kv_cache_shape(len(theirs))
            for theirs, ours in caches
        )
    return facts


def generate(answers: TextIO, model: str, options: dict[str, object]) -> None:
    """Load the model, say so, and serve."""
    from vllm import LLM, SamplingParams

    llm = LLM(model, dtype="float32", disable_log_stats=False, seed=0, **options)
    llm.collective_rpc(watch)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        params = SamplingParams(temperature=0, max_tokens=asked["num_tokens"], ignore_eos=True)
        start = time.perf_counter()
        outputs = llm.generate(asked["prompts"], params, use_tqdm=False)
        answer = {
            "seconds": time.perf_counter() - start,
            "token_ids": [list(output.outputs[0].token_ids) for output in outputs],
            "prompt_lens": [len(output.prompt_token_ids) for output in outputs],
            "counters": {
                metric.name.removeprefix("vllm:"): metric.value
                for metric in llm.get_metrics()
                if metric.name in ("vllm:num_preemptions", "vllm:prefix_cache_hits")
            },
            "worker": llm.collective_rpc(describe)[0],
            "pid": os.getpid(),
        }
        print(json.dumps(answer), file=answers, flush=True)


def refuse(answers: TextIO, model: str, folders: list[str]) -> None:
    """Ask vLLM's selection for layers of many kinds, then whole models, and print what it says of each."""
    import torch
    from vllm import LLM
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.attention.selector import get_attn_backend

    config = EngineArgs(
        model=model, dtype="float32", max_model_len=1024, attention_backend="CUSTOM"
    ).create_engine_config()
    layers = {
        "plain": {},
        "window": {"has_sliding_window": True},
        "sinks": {"has_sink": True},
        "sparse": {"use_sparse": True},
        "mla": {"use_mla": True},
        "prefix-lm": {"use_mm_prefix": True},
        "encoder": {"attn_type": "encoder_only"},
        "cross": {"attn_type": "encoder_decoder"},
        "fp8": {"kv_cache_dtype": "fp8"},
        "bfloat16 cache": {"kv_cache_dtype": "bfloat16"},
        "float64": {"dtype": torch.float64},
    }
    said = {}
    with set_current_vllm_config(config):
        for name, layer in layers.items():
            said[name] = _said(
                lambda layer=layer: (
                    get_attn_backend(64, **{"dtype": torch.float32, "kv_cache_dtype": "auto", **layer}).__name__
                )
            )
        for name, extra in {
            "alibi": {"alibi_slopes": [0.5] * 4},
            "soft cap": {"logits_soft_cap": 30.0},
            "shared cache": {"kv_sharing_target_layer_name": "model.layers.0"},
            "unknown": {"chunk_lookback": 3},
        }.items():
            said[name] = _said(
                lambda extra=extra: (
                    type(get_attn_backend(64, torch.float32, "auto").get_impl_cls()(4, 64, 0.125, 2, **extra)).__name__
                )
            )
    for folder in folders:
        said[os.path.basename(folder)] = _said(
            lambda folder=folder: (
                type(
                    LLM(
                        folder,
                        dtype="float32",
                        load_format="dummy",
                        skip_tokenizer_init=True,
                        enforce_eager=True,
                        attention_backend="CUSTOM",
                    )
                ).__name__
            )
        )
    print(json.dumps(said), file=answers, flush=True)


def _said(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Exception as error:  # shown to the caller
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Do what the first argument names."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints goes to stderr
    mode, model, rest = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    {"generate": generate, "refuse": refuse}[mode](answers, model, rest)


if __name__ == "__main__":
    main()
