"""Batches and fields by which two sides' attention metadata is compared. Needs torch alone: a peer's environment runs it.

A name is a path into the metadata, ``decode.seq_lens``. What the sides hold in different shapes is compared as a view,
which each side works out of what it built: names without a path in `VIEWS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import SupportsIndex, TypeAlias

import torch
from batches import Batch, make_batch
from torch import Tensor

__all__ = [
    "CHUNK_SIZE",
    "DENSE_MODEL",
    "DIFFERENT",
    "FIELDS",
    "LATENT_MODEL",
    "SINK_LEN",
    "SPLIT",
    "TOPK",
    "VIEWS",
    "WINDOW",
    "Rows",
    "Shown",
    "attention_batch",
    "compared_names",
    "encoder_lens",
    "fields_of",
    "shown",
]

Rows: TypeAlias = Sequence[tuple[int, int]]
"""Each row's new tokens and the length of its sequence behind them."""
Shown: TypeAlias = list[int] | int | None
"""A field's value: of a tensor its shape, then its elements."""

CHUNK_SIZE, WINDOW, TOPK, SINK_LEN = 48, 40, 64, 32
DENSE_MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 97,
    "hidden_size": 512,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 1024,
}
"""The configuration of a model of attention over keys and values; without weights, which builders do not need."""
LATENT_MODEL = {
    "model_type": "deepseek_v32",
    "architectures": ["DeepseekV32ForCausalLM"],
    "vocab_size": 97,
    "hidden_size": 512,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "q_lora_rank": 64,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 1024,
    "index_topk": TOPK,
    "index_head_dim": 128,
    "index_n_heads": 8,
}
"""The same of sparse latent attention: the sizes of DeepSeek-V3.2's cache, with fewer heads and layers."""

PAGED = (
    "num_actual_tokens",
    "max_query_len",
    "query_start_loc",
    "max_seq_len",
    "seq_lens",
    "block_table",
    "slot_mapping",
)
COUNTS = ("num_decodes", "num_decode_tokens", "num_prefills")
LATENT = ("num_reqs", "num_actual_tokens", "max_query_len", "max_seq_len", "query_start_loc", "slot_mapping")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "flash_attn": (*PAGED, "causal"),
    "window": (*PAGED, "causal"),
    "chunked_local": tuple(name for name in (*PAGED, "causal") if name != "block_table"),
    "sink": tuple(name for name in (*PAGED, "causal") if name != "block_table"),
    "encoder_only": ("num_actual_tokens", "max_query_len", "query_start_loc"),
    "cross": PAGED,
    "triton": (*PAGED, "causal"),
    "fp8_kv": (*PAGED, "causal"),
    "int8_kv": (*PAGED, "causal"),
    "turboquant": PAGED,
    "flashinfer": ("num_actual_tokens", "slot_mapping", *COUNTS, "num_prefill_tokens", "causal"),
    "hpc": (
        "num_actual_tokens",
        *COUNTS,
        "num_prefill_tokens",
        "max_query_len",
        "slot_mapping",
        "seq_lens",
        "block_table_tensor",
        "qo_indptr",
        "decode_query_len",
        "qo_indptr_decode",
    ),
    "mla": (
        *LATENT,
        *COUNTS,
        "decode.block_table",
        "decode.seq_lens",
        "decode.query_start_loc",
        "decode.max_query_len",
        "decode.max_seq_len",
        "prefill.query_start_loc",
        "prefill.max_query_len",
    ),
    "mla_sparse": (*LATENT, *COUNTS, "block_table", "seq_lens"),
    "indexer": (*COUNTS, "slot_mapping", "decode.block_table"),
}
"""For each back end the fields that both sides have and that mean the same."""
VIEWS: Mapping[str, tuple[str, ...]] = {
    "chunked_local": ("blocks_read",),
    "sink": ("blocks_read",),
    "flashinfer": ("decode_pages", "prefill_pages"),
    "mla": ("context",),
    "mla_sparse": ("row_of_token",),
    "indexer": ("decode_keys", "prefill_keys"),
}
"""For each back end what both sides hold in different shapes.

``blocks_read``: of each row the blocks that its sequence reaches. ``decode_pages``, ``prefill_pages``: what
FlashInfer is told of these rows. ``context``: of each prefill the tokens that were computed before, as all chunks
together cover them: a row and a position each, in order. ``row_of_token``: of each token that attends over a selection
its row. ``decode_keys``, ``prefill_keys``: of each token how many positions are scored for it.
"""


SPLIT: Mapping[str, int] = {"reorder_batch_threshold": 1}
"""The attribute by which some of vLLM's builders take short prefills for decodes, and its value here: none of them."""
DIFFERENT: Mapping[str, Mapping[str, str]] = {
    "XPUMLASparseMetadataBuilder": {
        "num_decodes": "it has no dense path, and calls every row a decode",
        "num_decode_tokens": "the same",
        "num_prefills": "the same",
    },
}
"""What single builders of vLLM mean otherwise than the others of their kind, with the reason."""


def compared_names(backend: str, builder: str, has: Collection[str]) -> tuple[str, ...]:
    """The names of all that is compared between a back end and one of vLLM's builders, which builds the fields ``has``."""
    fields = [name for name in FIELDS[backend] if name in has and name not in DIFFERENT.get(builder, {})]
    return (*fields, *VIEWS.get(backend, ()))


def attention_batch(rows: Rows, padding: int = 0) -> Batch:
    """The batch of ``rows``, and ``padding`` rows and tokens of a graph behind them: no length, null block, no slot."""
    batch = make_batch(rows)
    if not padding:
        return batch
    lens = torch.nn.functional.pad(batch.seq_lens, (0, padding))
    return dataclasses.replace(
        batch,
        query_start_loc=torch.cat((batch.query_start_loc, batch.query_start_loc[-1:].expand(padding))),
        seq_lens=lens,
        num_computed_tokens=torch.nn.functional.pad(batch.num_computed_tokens, (0, padding)),
        num_reqs=batch.num_reqs + padding,
        block_table=torch.nn.functional.pad(batch.block_table, (0, 0, 0, padding)),
        slot_mapping=torch.nn.functional.pad(batch.slot_mapping, (0, padding), value=-1),
    )


def encoder_lens(batch: Batch) -> Tensor:
    """``[num_reqs]`` int32: tokens of each row's encoder output; fewer than the row's own, so that its blocks hold them."""
    return torch.where(batch.seq_lens > 0, batch.seq_lens * 2 // 3 + 1, 0).clamp(max=batch.seq_lens).int()


def shown(value: object) -> Shown:
    """A field as JSON.

    Raises:
        TypeError: it is nothing that can be compared.
    """
    if isinstance(value, Tensor):
        return [*value.shape, *(int(each) for each in value.flatten().numpy())]
    if value is None:
        return None
    if isinstance(value, SupportsIndex):  # numpy's integers, too
        return int(value)
    raise TypeError(f"a field is a {type(value).__name__}")


def fields_of(metadata: object, names: Sequence[str], renamed: Mapping[str, str] | None = None) -> dict[str, Shown]:
    """The fields of ``metadata`` that it has; those of a part that is not there are ``None``.

    Args:
        metadata: what a builder made.
        names: paths of the fields.
        renamed: how ``metadata`` calls some of them.
    """
    found: dict[str, Shown] = {}
    for name in names:
        value: object = metadata
        *parts, last = ((renamed or {}).get(name, name)).split(".")
        for part in parts:
            value = None if value is None else getattr(value, part)
        if value is None or hasattr(value, last):
            found[name] = None if value is None else shown(getattr(value, last))
    return found
