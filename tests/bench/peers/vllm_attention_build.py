"""Runs under the peer's Python: vLLM's attention builders, for each line on stdin one answer, as JSON on stdout.

    python vllm_attention_build.py

Two configurations are vLLM's own, made of a model's ``config.json``: one of plain attention, one of sparse latent
attention. Builders are constructed by hand. What a CPU build lacks for them stands in (`vllm_stand_ins.py`); no layer
is registered but one of latent attention, which has its sizes and a prefill back end that prepares nothing.

A question names a back end of this library, a vLLM builder of its kind, the rows of a batch, how many rows of padding
follow, attributes of the builder that are set for this answer if it has them, and a number of iterations; the answer holds the fields that this library's metadata has, too, and, if
iterations were asked for, the microseconds of one ``build()`` with all stand-ins idle. The first line lists the
builders, the fields of what each one builds, and what cannot be built, with the reason.
"""

# ruff: noqa: ANN401  (nothing of vLLM is typed in this environment)
from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR")
sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

BACKENDS = "vllm.v1.attention.backends"
# Each back end's builders: their module and class, or a wrapper's name behind a colon.
BUILDERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "flash_attn": (("flash_attn", "FlashAttentionMetadataBuilder"),),
    "window": (("flash_attn", "FlashAttentionMetadataBuilder"),),
    "chunked_local": (("flash_attn", "ChunkedLocalAttentionBuilder"),),
    "sink": (("flash_attn", "StaticSinkAttentionBuilder"),),
    "encoder_only": (("flash_attn", "EncoderOnlyAttentionBuilder"),),
    "cross": (("flash_attn", "CrossAttentionBuilder"),),
    "triton": (("triton_attn", "TritonAttentionMetadataBuilder"),),
    "fp8_kv": (("triton_attn", "TritonAttentionMetadataBuilder"),),
    "int8_kv": (("triton_attn", "TritonAttentionMetadataBuilder"),),
    "turboquant": (("turboquant_attn", "TurboQuantMetadataBuilder"),),
    "flashinfer": (("flashinfer", "FlashInferMetadataBuilder"),),
    "hpc": (("hpc_attn", "HpcAttnMetadataBuilder"),),
    "mla": (
        ("mla.triton_mla", "TritonMLAMetadataBuilder"),
        ("mla.cutlass_mla", "CutlassMLAMetadataBuilder"),
        ("mla.flashinfer_mla", "FlashInferMLAMetadataBuilder"),
        ("mla.tokenspeed_mla", "TokenspeedMLAMetadataBuilder"),
        ("mla.amx_mla", "AMXMLAMetadataBuilder"),
        ("mla.flashmla", "FlashMLAMetadataBuilder"),
        ("mla.flashattn_mla", "FlashAttnMLAMetadataBuilder"),
        ("mla.rocm_aiter_mla", "AiterMLAMetadataBuilder"),
    ),
    "mla_sparse": (
        ("mla.flashmla_sparse", "FlashMLASparseMetadataBuilder"),
        ("mla.flashattn_mla_sparse", "FlashAttnMLASparseMetadataBuilder"),
        ("mla.flashinfer_mla_sparse", "FlashInferMLASparseMetadataBuilder"),
        ("mla.xpu_mla_sparse", "XPUMLASparseMetadataBuilder"),
        ("mla.rocm_aiter_mla_sparse", "ROCMAiterMLASparseMetadataBuilder"),
    ),
    "indexer": (("mla.indexer", "DeepseekV32IndexerMetadataBuilder"),),
}


def main() -> None:
    """Make the builders, say which could be made, and serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints goes to stderr
    import torch
    from attention_fields import DENSE_MODEL, LATENT_MODEL, SPLIT, attention_batch
    from batches import microseconds
    from vllm.config import set_current_vllm_config
    from vllm.envs import enable_envs_cache
    from vllm_stand_ins import IDLE, install

    torch.set_num_threads(1)
    stops: dict[str, str] = {}
    install()
    dense, latent = _configuration(DENSE_MODEL, "float32"), _configuration(LATENT_MODEL, "bfloat16")
    dense.cache_config.kv_cache_layout = "LBHNC"
    latent.compilation_config.static_forward_context["layer"] = _latent_layer()
    builders: dict[tuple[str, str], Any] = {}
    fields: dict[str, list[str]] = {}
    first = attention_batch([(1, 3), (5, 40)])
    for backend, kinds in BUILDERS.items():
        for module, name in kinds:
            config = latent if backend in ("mla", "mla_sparse", "indexer") else dense
            with set_current_vllm_config(config):
                try:
                    made = _builder(backend, module, name, config)
                    with _set(made, SPLIT):
                        batch = dataclasses.replace(first, seq_lens=first.seq_lens.clone())
                        fields[name] = _all_fields(made.build(0, _common(batch, backend)))
                    builders[backend, name] = made
                except Exception:  # shown to whoever compares
                    stops[name] = traceback.format_exc(limit=-2)
    enable_envs_cache()
    greeting = {"builders": [list(each) for each in builders], "fields": fields, "stops": stops}
    print(json.dumps(greeting), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        backend, name = asked["backend"], asked["builder"]
        batch = _common(attention_batch([tuple(row) for row in asked["rows"]], asked["padding"]), backend)
        builder = builders[backend, name]
        build = functools.partial(builder.build, 0, batch)
        if backend == "mla_sparse":
            build = functools.partial(_fresh, build, batch)
        if backend == "sink":
            build = functools.partial(
                _put_back, build, batch, dataclasses.replace(batch, seq_lens=batch.seq_lens.clone())
            )
        answer: dict[str, Any] = {}
        config = latent if backend in ("mla", "mla_sparse", "indexer") else dense
        try:
            with _set(builder, asked["settings"]), set_current_vllm_config(config):
                answer["fields"] = _shown(backend, build()) if asked["fields"] else {}
                if asked["iterations"]:
                    IDLE.now = True
                    answer["microseconds"] = microseconds(build, asked["iterations"])
                    IDLE.now = False
        except Exception:  # shown to whoever compares
            answer["error"] = traceback.format_exc(limit=-3)
        print(json.dumps(answer), file=answers, flush=True)


@contextlib.contextmanager
def _set(builder: Any, settings: Mapping[str, int]) -> Iterator[None]:
    kept = {name: getattr(builder, name) for name in settings if hasattr(builder, name)}
    for name in kept:
        setattr(builder, name, settings[name])
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(builder, name, value)


def _fresh(build: Callable[[], Any], batch: Any) -> Any:
    # A batch remembers its tokens' requests for the next group; each build here is the first one of its batch.
    batch._token_to_req_indices_cache = None
    return build()


def _put_back(build: Callable[[], Any], batch: Any, kept: Any) -> Any:
    # The builder adds the sinks to the very tensors of its batch.
    batch.seq_lens.copy_(kept.seq_lens)
    batch.max_seq_len, batch.block_table_tensor = kept.max_seq_len, kept.block_table_tensor
    return build()


def _configuration(model: Mapping[str, Any], dtype: str) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(model))
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            dtype=dtype,
            max_model_len=1024,
            max_num_seqs=1024,
            block_size=16,
        ).create_engine_config()
    # For a CPU vLLM lowers this below what the batches hold.
    config.scheduler_config.max_num_batched_tokens = 8192
    return config


def _latent_layer() -> Any:
    from attention_fields import LATENT_MODEL

    sizes = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    prefill = SimpleNamespace(prepare_metadata=lambda _: None)
    prefill.clone = lambda: prefill
    return SimpleNamespace(
        prefill_backend=prefill,
        impl=SimpleNamespace(sinks=None),
        num_heads=LATENT_MODEL["num_attention_heads"],
        **{name: LATENT_MODEL[name] for name in sizes},
    )


def _builder(backend: str, module: str, name: str, config: Any) -> Any:
    import importlib

    import torch
    from attention_fields import CHUNK_SIZE, SINK_LEN

    found = importlib.import_module(f"{BACKENDS}.{module}")
    layers = "vllm.model_executor.layers.attention"
    if backend == "chunked_local":
        wrap = importlib.import_module(f"{layers}.chunked_local_attention").create_chunked_local_attention_backend
        kind = wrap(found.FlashAttentionBackend, CHUNK_SIZE).get_builder_cls()
    elif backend == "sink":
        wrap = importlib.import_module(f"{layers}.static_sink_attention").create_static_sink_attention_backend
        kind = wrap(found.FlashAttentionBackend, SINK_LEN).get_builder_cls()
        # It counts the sinks among a request's tokens, which the batches leave no room for.
        config = copy.deepcopy(config)
        config.model_config.max_model_len += SINK_LEN
    elif backend in ("encoder_only", "cross"):
        wrap = getattr(importlib.import_module(f"{layers}.{backend}_attention"), f"create_{backend}_attention_backend")
        kind = wrap(found.FlashAttentionBackend).get_builder_cls()
    else:
        kind = getattr(found, name)
    more = {"block_table_width": 64} if backend == "indexer" else {}
    return kind(_spec(backend), ["layer"], config, torch.device("cpu"), **more)


def _spec(backend: str) -> Any:
    import torch
    from attention_fields import CHUNK_SIZE, SINK_LEN, WINDOW
    from vllm.v1 import kv_cache_interface as specs

    sizes: dict[str, Any] = {"block_size": 16, "num_kv_heads": 2, "head_size": 64, "dtype": torch.float32}
    if backend in ("mla", "mla_sparse"):
        return specs.MLAAttentionSpec(block_size=16, num_kv_heads=1, head_size=576, dtype=torch.bfloat16)
    if backend == "indexer":
        return specs.MLAAttentionSpec(block_size=16, num_kv_heads=1, head_size=132, dtype=torch.uint8)
    if backend == "window":
        return specs.SlidingWindowSpec(**sizes, sliding_window=WINDOW)
    if backend == "chunked_local":
        return specs.ChunkedLocalAttentionSpec(**sizes, attention_chunk_size=CHUNK_SIZE)
    if backend == "sink":
        return specs.SinkFullAttentionSpec(**sizes, sink_len=SINK_LEN)
    if backend == "cross":
        return specs.CrossAttentionSpec(**sizes)
    if backend == "encoder_only":
        return specs.EncoderOnlyAttentionSpec(**sizes)
    mode = {"fp8_kv": "FP8_PER_TOKEN_HEAD", "int8_kv": "INT8_PER_TOKEN_HEAD"}.get(backend)
    if mode is not None:
        return specs.FullAttentionSpec(**{**sizes, "dtype": torch.uint8}, kv_quant_mode=specs.KVQuantMode[mode])
    if backend == "hpc":
        sizes = {"block_size": 16, "num_kv_heads": 2, "head_size": 128, "dtype": torch.bfloat16}
    return specs.FullAttentionSpec(**sizes)


def _common(batch: Any, backend: str) -> Any:
    import torch
    from attention_fields import SINK_LEN, encoder_lens
    from vllm.v1.attention.backend import CommonAttentionMetadata

    more, table = {}, batch.block_table
    if backend == "sink":  # vLLM's tables have room for more blocks than a batch has; its builder reads some of these
        table = torch.nn.functional.pad(table, (0, SINK_LEN // 16))
    if backend == "cross":
        lens = encoder_lens(batch)
        more = {"encoder_seq_lens": lens, "encoder_seq_lens_cpu": lens.numpy()}
    return CommonAttentionMetadata(
        query_start_loc=batch.query_start_loc,
        query_start_loc_cpu=batch.query_start_loc,
        seq_lens=batch.seq_lens,
        seq_lens_cpu_upper_bound=batch.seq_lens,
        num_reqs=batch.num_reqs,
        num_actual_tokens=batch.num_actual_tokens,
        max_query_len=batch.max_query_len,
        max_seq_len=batch.max_seq_len,
        block_table_tensor=table,
        slot_mapping=batch.slot_mapping,
        **more,
    )


def _all_fields(metadata: Any) -> list[str]:
    """The names of all fields, with those of the decodes' and prefills' parts."""
    found: list[str] = []
    for field in dataclasses.fields(metadata):
        part = getattr(metadata, field.name)
        if field.name in ("decode", "prefill") and dataclasses.is_dataclass(part):
            found += [f"{field.name}.{name}" for name in _all_fields(part)]
        else:
            found.append(field.name)
    return found


def _shown(backend: str, made: Any) -> dict[str, Any]:
    from attention_fields import FIELDS, VIEWS, fields_of, shown

    views = {name: shown(VIEW[name](made)) for name in VIEWS.get(backend, ())}
    return {**fields_of(made, FIELDS[backend]), **views}


def _blocks_read(made: Any) -> Any:
    import torch

    counts = -(-made.seq_lens // 16)
    return torch.cat([row[:count] for row, count in zip(made.block_table, counts.tolist(), strict=True)])


def _decode_pages(made: Any) -> Any:
    return None if made.decode is None else _pages(made.decode.wrapper.told, "")


def _prefill_pages(made: Any) -> Any:
    return None if made.prefill is None else _pages(made.prefill.wrapper.told, "paged_kv_")


def _pages(told: Mapping[str, Any], prefix: str) -> Any:
    import torch

    starts, indices, last = (told[f"{prefix}{name}"] for name in ("indptr", "indices", "last_page_len"))
    first = starts[0] if prefix else 0
    read = indices[int(first) : int(starts[-1])]
    parts = [starts - first, read, last]
    return torch.cat([*parts, told["qo_indptr"]] if prefix else parts)


def _context(made: Any) -> Any:
    import torch

    if made.prefill is None or made.prefill.chunked_context is None:
        return None
    pairs = []
    for chunk in made.prefill.chunked_context.chunks:
        rows = torch.arange(chunk.request_slice.start, chunk.request_slice.stop)
        for row, start, count in zip(rows.tolist(), chunk.starts.tolist(), chunk.seq_lens.tolist(), strict=True):
            pairs += [(row, position) for position in range(start, start + count)]
    return torch.tensor(sorted(pairs))


def _row_of_token(made: Any) -> Any:
    return made.req_id_per_token


def _decode_keys(made: Any) -> Any:
    return None if made.decode is None else made.decode.seq_lens.flatten()


def _prefill_keys(made: Any) -> Any:
    import torch

    if made.prefill is None or not made.prefill.chunks:
        return None
    tokens = [torch.arange(chunk.token_start, chunk.token_end) for chunk in made.prefill.chunks]
    keys = [chunk.cu_seqlen_ke - chunk.cu_seqlen_ks for chunk in made.prefill.chunks]
    return torch.cat([torch.cat(tokens), torch.cat(keys)])


VIEW: Mapping[str, Callable[[Any], Any]] = {
    "blocks_read": _blocks_read,
    "decode_pages": _decode_pages,
    "prefill_pages": _prefill_pages,
    "context": _context,
    "row_of_token": _row_of_token,
    "decode_keys": _decode_keys,
    "prefill_keys": _prefill_keys,
}


if __name__ == "__main__":
    main()
