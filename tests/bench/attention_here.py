"""This library's attention builders for `attention_build.py` and its test, made by hand, and what they build as fields."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch
from attention_fields import (
    CHUNK_SIZE,
    FIELDS,
    LATENT_MODEL,
    SINK_LEN,
    TOPK,
    VIEWS,
    WINDOW,
    Shown,
    encoder_lens,
    fields_of,
    shown,
)
from batches import BLOCK_SIZE, Batch
from torch import Tensor
from typing_extensions import TypeVar

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.chunked_local import CHUNKED_LOCAL
from genericbuilders.backends.cross import CROSS, ENCODER_ROWS, EncoderRows
from genericbuilders.backends.encoder_only import ENCODER_ONLY
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionMetadata
from genericbuilders.backends.flashinfer import FLASHINFER, FlashInferMetadata
from genericbuilders.backends.fp8_kv import FP8_KV
from genericbuilders.backends.hpc import HPC
from genericbuilders.backends.indexer import IndexerMetadata, IndexerMetadataBuilder, IndexRows
from genericbuilders.backends.int8_kv import INT8_KV
from genericbuilders.backends.mla import MLAMetadata, MLAMetadataBuilder
from genericbuilders.backends.mla_common import MLACommonMetadata
from genericbuilders.backends.mla_sparse import MLASparseMetadata, MLASparseMetadataBuilder
from genericbuilders.backends.quantised_base import quantised_spec
from genericbuilders.backends.sink import SINK, SinkMetadata
from genericbuilders.backends.triton import TRITON
from genericbuilders.backends.turboquant import TURBOQUANT
from genericbuilders.cache.block_table import slots_of
from genericbuilders.config import AttentionLayerConfig, EngineConfig, LayerConfig
from genericbuilders.kernels.flashinfer import PageInputs
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.sparse_config import IndexLayerConfig, SparseLatentLayerConfig
from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    KVQuantMode,
    MLAAttentionSpec,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
)

__all__ = ["RENAMED", "Build", "builds", "common_of", "shown_here"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)
Build = Callable[[CommonAttentionMetadata], object]

CPU = torch.device("cpu")
HEADS, KV_HEADS, HEAD_SIZE, INDEX_SIZE = 8, 2, 64, 128
NO_SLOTS = torch.empty(0, dtype=torch.int64)
RENAMED: Mapping[str, Mapping[str, str]] = {
    "cross": {"seq_lens": "encoder_lens", "max_seq_len": "max_encoder_len"},
    "hpc": {"block_table_tensor": "block_table"},
}
"""What this library calls otherwise than vLLM does."""


def builds(workspace: int = 0, max_logits: int = 0) -> dict[str, Build]:
    """Each back end's ``build()`` by name.

    Args:
        workspace: tokens of context that latent attention expands at once; 0 for its own choice.
        max_logits: bytes of an indexer's scores; 0 for its own choice.
    """
    full = _full(HEAD_SIZE, torch.float32)
    modes = {
        "fp8_kv": quantised_spec(full, KVQuantMode.FP8_PER_TOKEN_HEAD),
        "int8_kv": quantised_spec(full, KVQuantMode.INT8_PER_TOKEN_HEAD),
        "turboquant": quantised_spec(full, KVQuantMode.TURBOQUANT_4BIT_NC),
    }
    size, heads, dtype = BLOCK_SIZE, KV_HEADS, torch.float32
    window = SlidingWindowSpec(
        block_size=size, num_kv_heads=heads, head_size=HEAD_SIZE, dtype=dtype, sliding_window=WINDOW
    )
    chunks = ChunkedLocalAttentionSpec(
        block_size=size, num_kv_heads=heads, head_size=HEAD_SIZE, dtype=dtype, attention_chunk_size=CHUNK_SIZE
    )
    sink = SinkFullAttentionSpec(
        block_size=size, num_kv_heads=heads, head_size=HEAD_SIZE, dtype=dtype, sink_len=SINK_LEN
    )
    encoder = EncoderOnlyAttentionSpec(block_size=size, num_kv_heads=heads, head_size=HEAD_SIZE, dtype=dtype)
    return {
        "flash_attn": _build(FLASH_ATTN, full, _layer()),
        "window": _build(FLASH_ATTN, window, _layer(sliding_window=WINDOW)),
        "chunked_local": _build(CHUNKED_LOCAL, chunks, _layer(attention_chunk_size=CHUNK_SIZE)),
        "sink": _build(SINK, sink, _layer()),
        "encoder_only": _build(ENCODER_ONLY, encoder, _layer(causal=False)),
        "cross": functools.partial(_build_cross, _cross()),
        "triton": _build(TRITON, full, _layer()),
        "fp8_kv": _build(FP8_KV, modes["fp8_kv"], _layer()),
        "int8_kv": _build(INT8_KV, modes["int8_kv"], _layer()),
        "turboquant": _build(TURBOQUANT, modes["turboquant"], _layer()),
        "flashinfer": _build(FLASHINFER, full, _layer()),
        "hpc": _build(HPC, _full(128, torch.bfloat16), _layer(128)),
        "mla": _latent(MLAMetadataBuilder, workspace),
        "mla_sparse": _latent(MLASparseMetadataBuilder, workspace),
        "indexer": _indexer(max_logits),
    }


def _full(head_size: int, dtype: torch.dtype) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=KV_HEADS, head_size=head_size, dtype=dtype)


def _layer(
    head_size: int = HEAD_SIZE,
    *,
    causal: bool = True,
    sliding_window: int | None = None,
    attention_chunk_size: int | None = None,
) -> AttentionLayerConfig:
    return AttentionLayerConfig(
        HEADS, KV_HEADS, head_size, head_size**-0.5, causal, sliding_window, attention_chunk_size
    )


def _config(layer: LayerConfig) -> EngineConfig:
    return EngineConfig(max_model_len=1024, max_num_seqs=1024, max_num_batched_tokens=8192, layers={"layer": layer})


def _build(adapter: BackendAdapter[M, S], spec: S, layer: AttentionLayerConfig) -> Build:
    return functools.partial(adapter.builder(spec, ["layer"], _config(layer), CPU).build, 0)


def _latent(kind: type[MLAMetadataBuilder | MLASparseMetadataBuilder], workspace: int) -> Build:
    sizes = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    rank, nope, rope, value = (int(str(LATENT_MODEL[name])) for name in sizes)
    layer = SparseLatentLayerConfig(16, rank, nope, rope, value, (nope + rope) ** -0.5, topk=TOPK)
    spec = MLAAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=rank + rope, dtype=torch.bfloat16)
    builder = kind(spec, ["layer"], _config(layer), CPU)
    builder.workspace_tokens = workspace or builder.workspace_tokens
    return functools.partial(builder.build, 0)


def _indexer(max_logits: int) -> Build:
    layer = IndexLayerConfig(8, INDEX_SIZE, TOPK, INDEX_SIZE**-0.5)
    spec = MLAAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=INDEX_SIZE, dtype=torch.bfloat16)
    builder = IndexerMetadataBuilder(spec, ["layer"], _config(layer), CPU)
    builder.max_logits_bytes = max_logits or builder.max_logits_bytes
    return functools.partial(builder.build, 0)


def _cross() -> Build:
    spec = CrossAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=KV_HEADS, head_size=HEAD_SIZE, dtype=torch.float32)
    return _build(CROSS, spec, _layer(causal=False))


def _build_cross(build: Build, common: CommonAttentionMetadata) -> object:
    """What vLLM's builder does in one: the slots of the rows that start, which the engine makes here, and `build`."""
    rows = common.inputs[ENCODER_ROWS]
    starting = np.flatnonzero(rows.starts_cpu.numpy())
    if not len(starting):
        return build(common.for_group(common.block_table_tensor, NO_SLOTS))
    counts = rows.lens_cpu.numpy()[starting].astype(np.int64)
    positions = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    table = common.block_table_tensor
    slots = slots_of(table.numpy(), np.repeat(starting, counts), positions, BLOCK_SIZE)
    return build(common.for_group(table, torch.as_tensor(slots)))


def common_of(batch: Batch, backend: str = "") -> CommonAttentionMetadata:
    """A batch as a back end's builder gets it: with encoder outputs; for `SINK` the sinks' blocks stand in each row."""
    table = batch.block_table
    if backend == "sink":
        sinks = torch.arange(1, 1 + SINK_LEN // BLOCK_SIZE, dtype=table.dtype)
        table = torch.cat((sinks.expand(len(table), -1), table), 1)
    common = CommonAttentionMetadata(
        query_start_loc=batch.query_start_loc,
        query_start_loc_cpu=batch.query_start_loc,
        seq_lens=batch.seq_lens,
        seq_lens_cpu=batch.seq_lens,
        num_computed_tokens_cpu=batch.num_computed_tokens,
        num_reqs=batch.num_reqs,
        num_actual_tokens=batch.num_actual_tokens,
        max_query_len=batch.max_query_len,
        max_seq_len=batch.max_seq_len,
        block_table_tensor=table,
        slot_mapping=batch.slot_mapping,
    )
    lens = encoder_lens(batch)
    starts = (batch.num_computed_tokens == 0) & (batch.query_start_loc.diff() > 0)
    common.inputs.put(ENCODER_ROWS, EncoderRows(lens, lens, starts))
    return common


def shown_here(backend: str, made: object) -> dict[str, Shown]:
    """What a back end of this library built, by vLLM's names."""
    views = {name: shown(_view(name, made)) for name in VIEWS.get(backend, ())}
    return {**fields_of(made, FIELDS[backend], RENAMED.get(backend)), **views}


def _view(name: str, made: object) -> Tensor | None:
    if name == "blocks_read" and isinstance(made, FlashAttentionMetadata | SinkMetadata):
        counts = -(-made.seq_lens // BLOCK_SIZE)
        return torch.cat([row[: int(count)] for row, count in zip(made.block_table, counts, strict=True)])
    if isinstance(made, FlashInferMetadata):
        rows, decoded = made.num_decodes + made.num_prefills, made.num_decode_tokens
        if name == "decode_pages":
            return _pages(made.pages.rows(0, decoded)) if made.num_decodes else None
        return _pages(made.pages.rows(made.num_decodes, rows), tokens=True) if made.num_prefills else None
    if name == "context" and isinstance(made, MLAMetadata):
        return _context(made)
    if name == "row_of_token" and isinstance(made, MLASparseMetadata):
        counts = made.query_start_loc.diff().long()
        row = torch.arange(made.num_reqs, dtype=torch.int32).repeat_interleave(counts)
        if made.sparse is not None:
            row[made.sparse.tokens] = made.sparse.rows.int()
        return row
    if isinstance(made, IndexerMetadata):
        if name == "decode_keys":
            return None if made.decode is None else made.decode.seq_lens
        tokens = [torch.arange(rows.token_start, rows.token_end) for rows in made.chunks]
        return torch.cat([*tokens, *map(_keys, made.chunks)]) if made.chunks else None
    raise TypeError(f"{name} is no view of a {type(made).__name__}")


def _pages(pages: PageInputs, *, tokens: bool = False) -> Tensor:
    parts = [pages.paged_kv_indptr, pages.paged_kv_indices, pages.paged_kv_last_page_len]
    return torch.cat([*parts, pages.qo_indptr] if tokens else parts)


def _context(made: MLACommonMetadata) -> Tensor | None:
    if made.prefill is None or not made.prefill.context:
        return None
    pairs = [
        (row, position)
        for chunk in made.prefill.context
        for row, (start, count) in enumerate(zip(chunk.starts, chunk.lengths, strict=True))
        for position in range(int(start), int(start) + int(count))
    ]
    return torch.tensor(sorted(pairs))


def _keys(rows: IndexRows) -> Tensor:
    counts = rows.query_start_loc.diff().long()
    row = torch.arange(len(counts)).repeat_interleave(counts)
    return torch.arange(len(row)) - rows.query_start_loc[row] + (rows.seq_lens - counts)[row] + 1
