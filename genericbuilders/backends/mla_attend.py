"""The steps of latent attention that its back ends share: storing vectors, and attending densely over them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genericbuilders.backends.mla_common import ContextChunk, MLACommonMetadata, MLADecode, MLAPrefill
from genericbuilders.config import LatentLayerConfig
from genericbuilders.kernels.merge import merge_attention_states
from genericbuilders.kernels.select import AttentionKernels
from genericbuilders.kernels.validation import check_blocks

__all__ = ["MLAInputs", "absorb", "attend_decodes", "attend_prefills", "value_of", "write_latents"]


@dataclass(frozen=True)
class MLAInputs:
    """What one layer of latent attention brings.

    Attributes:
        query: ``[num_tokens, num_heads, qk_nope_head_dim + qk_rope_head_dim]``, the part with positions last, rotated.
        latent: ``[num_tokens, kv_lora_rank + qk_rope_head_dim]``: the normalised latent vector, then the shared key
            with positions, rotated.
        kv_up: ``[num_heads, qk_nope_head_dim + v_head_dim, kv_lora_rank]``: expands a latent vector into each head's
            key without positions and its value.
    """

    query: Tensor
    latent: Tensor
    kv_up: Tensor


def write_latents(
    kernels: AttentionKernels,
    layer: LatentLayerConfig,
    inputs: MLAInputs,
    kv_cache: Tensor,
    metadata: MLACommonMetadata,
) -> None:
    """Store the new tokens' latent vectors.

    Raises:
        ValueError: queries, latent vectors or what expands them are not those of this layer's heads, or there are fewer
            queries than the batch has tokens.
        TypeError: they are not all of the cache's dtype.
    """
    wanted = (
        (layer.num_heads, layer.qk_nope_head_dim + layer.qk_rope_head_dim),
        (len(inputs.query), layer.latent_size),
        (layer.num_heads, layer.qk_nope_head_dim + layer.v_head_dim, layer.kv_lora_rank),
    )
    if (inputs.query.shape[1:], inputs.latent.shape, inputs.kv_up.shape) != wanted:
        raise ValueError(
            f"query is {tuple(inputs.query.shape)}, latent {tuple(inputs.latent.shape)} and kv_up "
            f"{tuple(inputs.kv_up.shape)}; the layer wants {', '.join(map(str, wanted))}, the first for each token"
        )
    if len(inputs.query) < metadata.num_actual_tokens:
        raise ValueError(f"there are queries of {len(inputs.query)} tokens; the batch has {metadata.num_actual_tokens}")
    dtypes = (inputs.query.dtype, inputs.latent.dtype, inputs.kv_up.dtype)
    if any(dtype is not kv_cache.dtype for dtype in dtypes):
        raise TypeError(
            f"the cache is {kv_cache.dtype}, but query, latent and kv_up are {', '.join(map(str, dtypes))}; all must "
            "be of one dtype"
        )
    latent = inputs.latent[:, None]
    kernels.write_kv_cache(latent, latent[..., : layer.kv_lora_rank], *_as_keys(kv_cache, layer), metadata.slot_mapping)


def absorb(query: Tensor, kv_up: Tensor, layer: LatentLayerConfig) -> Tensor:
    """Queries that ask a latent vector what they would ask the keys expanded from it; as long as that vector."""
    nope = layer.qk_nope_head_dim
    return torch.cat((torch.einsum("thd,hdl->thl", query[..., :nope], kv_up[:, :nope]), query[..., nope:]), -1)


def value_of(attended: Tensor, kv_up: Tensor, layer: LatentLayerConfig) -> Tensor:
    """Each head's value, ``[num_tokens, num_heads, v_head_dim]``, from ``[num_tokens, num_heads, kv_lora_rank]``."""
    return torch.einsum("thl,hvl->thv", attended, kv_up[:, layer.qk_nope_head_dim :])


def attend_decodes(
    kernels: AttentionKernels, layer: LatentLayerConfig, new: MLAInputs, kv_cache: Tensor, decode: MLADecode
) -> Tensor:
    """Decodes attend over the latent vectors themselves."""
    keys, values = _as_keys(kv_cache, layer)
    attended = kernels.paged_attention(
        absorb(new.query, new.kv_up, layer),
        keys,
        values,
        query_start_loc=decode.query_start_loc,
        seq_lens=decode.seq_lens,
        block_table=decode.block_table,
        scale=layer.scale,
        causal=True,
        max_query_len=decode.max_query_len,
        max_seq_len=decode.max_seq_len,
    )
    return value_of(attended, new.kv_up, layer)


def attend_prefills(
    kernels: AttentionKernels, layer: LatentLayerConfig, new: MLAInputs, kv_cache: Tensor, prefill: MLAPrefill
) -> Tensor:
    """Prefills attend over their new tokens, then over each chunk of their context; results are merged."""
    starts, longest = prefill.query_start_loc, prefill.max_query_len
    working = torch.promote_types(new.query.dtype, torch.float32)
    key, value = _expand(new.latent, new.kv_up, layer)
    outs: list[Tensor] = []
    lses: list[Tensor] = []

    def attend(key: Tensor, value: Tensor, cu_seqlens_k: Tensor, max_seqlen_k: int, causal: bool) -> None:
        lse = new.query.new_empty(new.query.shape[:2], dtype=working)
        out = kernels.varlen_attention(
            new.query,
            key,
            value,
            cu_seqlens_q=starts,
            cu_seqlens_k=cu_seqlens_k,
            max_seqlen_q=longest,
            max_seqlen_k=max_seqlen_k,
            scale=layer.scale,
            causal=causal,
            lse=lse,
        )
        outs.append(out)
        lses.append(lse)

    attend(key, value, starts, longest, causal=True)
    for chunk in prefill.context:
        key, value = _expand(_gather(kv_cache, chunk), new.kv_up, layer)
        attend(key, value, chunk.cu_seq_lens, chunk.max_seq_len, causal=False)
    return outs[0] if len(outs) == 1 else merge_attention_states(outs, lses)


def _as_keys(kv_cache: Tensor, layer: LatentLayerConfig) -> tuple[Tensor, Tensor]:
    """The cache as keys of one head, and as its values, which are the front of the same vectors."""
    keys = kv_cache[:, :, None]
    return keys, keys[..., : layer.kv_lora_rank]


def _expand(latent: Tensor, kv_up: Tensor, layer: LatentLayerConfig) -> tuple[Tensor, Tensor]:
    """Each head's keys and values, from latent vectors ``[num_tokens, latent_size]``."""
    rank, nope = layer.kv_lora_rank, layer.qk_nope_head_dim
    expanded = torch.einsum("tl,hdl->thd", latent[:, :rank], kv_up)
    position = latent[:, None, rank:].expand(-1, layer.num_heads, -1)
    return torch.cat((expanded[..., :nope], position), -1), expanded[..., nope:].contiguous()


def _gather(kv_cache: Tensor, chunk: ContextChunk) -> Tensor:
    """The latent vectors of a chunk, ``[num_tokens, latent_size]``."""
    slots = chunk.slots
    check_blocks(torch.div(slots, kv_cache.shape[1], rounding_mode="floor"), len(kv_cache))
    return kv_cache[slots // kv_cache.shape[1], slots % kv_cache.shape[1]]
