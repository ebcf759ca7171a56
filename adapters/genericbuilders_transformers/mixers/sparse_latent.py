"""DeepSeek-V3.2's sparse latent attention, and the indexer inside it: two layers, each with a cache of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers.models.deepseek_v32.modeling_deepseek_v32 import (
    DeepseekV32Attention,
    DeepseekV32Indexer,
    apply_rotary_pos_emb,
    apply_rotary_pos_emb_interleave,
)
from typing_extensions import override

from genericbuilders.backends.indexer import INDEXER, IndexerInputs
from genericbuilders.backends.mla_sparse import MLA_SPARSE, MLASparseInputs
from genericbuilders.model import LoadError, PlacedLayer
from genericbuilders.sparse_config import IndexLayerConfig, SparseLatentLayerConfig
from genericbuilders.specs import MLAAttentionSpec
from genericbuilders_transformers.mixers.base import Mixer, MixerPlace, check_shape, refused_module

__all__ = ["SparseLatentAttention", "sparse_latent_attention"]


def sparse_latent_attention(module: nn.Module, place: MixerPlace) -> SparseLatentAttention:
    """The module that replaces ``module``, on its weights.

    Raises:
        LoadError: it is no attention of DeepSeek-V3.2, or its weights do not fit its settings.
    """
    if not isinstance(module, DeepseekV32Attention):
        raise refused_module(place, module, "DeepseekV32Attention")
    return SparseLatentAttention(module, place)


class SparseLatentAttention(Mixer):
    """Attention over the latent vectors that its indexer selects; called as transformers calls its own."""

    def __init__(self, source: DeepseekV32Attention, place: MixerPlace) -> None:
        super().__init__()
        heads, rank, indexer = source.num_heads, source.kv_lora_rank, source.indexer
        nope, rope, value = source.qk_nope_head_dim, source.qk_rope_head_dim, source.v_head_dim
        check_shape(place.name, "kv_b_proj.weight", source.kv_b_proj.weight, (heads * (nope + value), rank))
        check_shape(place.name, "q_b_proj.weight", source.q_b_proj.weight, (heads * (nope + rope), source.q_lora_rank))
        _check_indexer(place, indexer)
        try:
            config = SparseLatentLayerConfig(heads, rank, nope, rope, value, source.scaling, topk=indexer.index_topk)
            selecting = IndexLayerConfig(indexer.n_heads, indexer.head_dim, indexer.index_topk, indexer.softmax_scale)
        except ValueError as error:
            raise LoadError(f"{place.name}: {error}") from None
        self.layer = MLA_SPARSE.layer(place.name, config)
        self.index_layer = INDEXER.layer(f"{place.name}.indexer", selecting)
        self.placed = PlacedLayer(self.layer, _spec(place, config.latent_size))
        self.index_placed = PlacedLayer(self.index_layer, _spec(place, indexer.head_dim))
        self.running = place.running
        self.source = source
        self.kv_up = nn.Buffer(source.kv_b_proj.weight.detach().view(heads, nope + value, rank), persistent=False)

    @property
    @override
    def all_placed(self) -> Sequence[PlacedLayer]:
        return (self.placed, self.index_placed)

    def forward(
        self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], **kwargs: object
    ) -> tuple[Tensor, None]:
        """The layer's output, ``[1, num_tokens, hidden_size]``, and no weights."""
        source, layer = self.source, self.layer.impl.layer
        nope, rank = layer.qk_nope_head_dim, layer.kv_lora_rank
        residual: Tensor = source.q_a_layernorm(source.q_a_proj(hidden_states))
        query: Tensor = source.q_b_proj(residual)
        query = query.view(1, -1, layer.num_heads, nope + layer.qk_rope_head_dim).transpose(1, 2)
        latent: Tensor = source.kv_a_proj_with_mqa(hidden_states)
        q_rope, k_rope = apply_rotary_pos_emb_interleave(
            query[..., nope:], latent[:, None, :, rank:], *position_embeddings
        )
        inputs = MLASparseInputs(
            torch.cat((query[..., :nope], q_rope), -1)[0].transpose(0, 1),
            torch.cat((source.kv_a_layernorm(latent[0, :, :rank]), k_rope[0, 0]), -1),
            self.kv_up,
            self._select(hidden_states, residual, position_embeddings),
        )
        context = self.running.context
        out = self.layer.impl.forward(
            inputs, kv_cache=context.kv_caches[self.layer], attn_metadata=context.step[self.layer]
        )
        projected: Tensor = source.o_proj(out.flatten(1))
        return projected[None], None

    def _select(self, hidden_states: Tensor, residual: Tensor, position_embeddings: tuple[Tensor, Tensor]) -> Tensor:
        """The positions that each token attends over, ``[num_tokens, topk]`` int32."""
        indexer, context = self.source.indexer, self.running.context
        rope, (cos, sin) = indexer.qk_rope_head_dim, position_embeddings
        query: Tensor = indexer.wq_b(residual)
        query = query.view(1, -1, indexer.n_heads, indexer.head_dim)
        key: Tensor = indexer.k_norm(indexer.wk(hidden_states))[:, :, None]
        # Unlike in the attention itself, what is rotated together lies half a vector apart.
        q_rope, k_rope = apply_rotary_pos_emb(query[..., :rope], key[..., :rope], cos, sin, unsqueeze_dim=2)
        # The factor on weights changes no order, but keeps scores, and so their rounding, as transformers has them.
        weights: Tensor = indexer.weights_proj(hidden_states[0].to(indexer.weights_proj.weight.dtype))
        inputs = IndexerInputs(
            torch.cat((q_rope, query[..., rope:]), -1)[0],
            torch.cat((k_rope, key[..., rope:]), -1)[0, :, 0],
            weights.float() * indexer.n_heads**-0.5,
        )
        return self.index_layer.impl.forward(
            inputs, kv_cache=context.kv_caches[self.index_layer], attn_metadata=context.step[self.index_layer]
        )


def _check_indexer(place: MixerPlace, indexer: DeepseekV32Indexer) -> None:
    name, size = f"{place.name}.indexer", indexer.head_dim
    check_shape(name, "wq_b.weight", indexer.wq_b.weight, (indexer.n_heads * size, indexer.q_lora_rank))
    check_shape(name, "wk.weight", indexer.wk.weight, (size, indexer.hidden_size))
    check_shape(name, "weights_proj.weight", indexer.weights_proj.weight, (indexer.n_heads, indexer.hidden_size))
    if size < indexer.qk_rope_head_dim:
        raise LoadError(
            f"{name} has keys of {size} elements, fewer than the {indexer.qk_rope_head_dim} that are rotated; "
            "index_head_dim must be at least qk_rope_head_dim"
        )


def _spec(place: MixerPlace, size: int) -> MLAAttentionSpec:
    return MLAAttentionSpec(block_size=place.block_size, num_kv_heads=1, head_size=size, dtype=place.dtype)
