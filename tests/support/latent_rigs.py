"""Back ends of latent attention, and the indexer, on a batch: what they give, and what they must give."""

from __future__ import annotations

import torch
from attention_batches import ints
from rig_base import CPU, MODEL_LEN, TOKENS, Rig, Route, Shape, attend, built, drawn_by
from torch import Tensor
from typing_extensions import override

from genericbuilders.backends.indexer import INDEXER, IndexerInputs
from genericbuilders.backends.mla import MLA, MLAInputs
from genericbuilders.backends.mla_sparse import MLA_SPARSE, MLASparseInputs
from genericbuilders.config import EngineConfig, LatentLayerConfig, LayerConfig
from genericbuilders.kernels.sparse import reference as sparse_reference
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.sparse_config import IndexLayerConfig, SparseLatentLayerConfig
from genericbuilders.specs import MLAAttentionSpec

__all__ = ["IndexRig", "LatentRig", "SparseRig", "latent_inputs"]

TOPK = 4
RANK, ROPE, NOPE, VALUE = 12, 4, 6, 5


def latent_inputs(common: CommonAttentionMetadata, shape: Shape, seed: int) -> MLAInputs:
    """What a layer of latent attention brings."""
    tokens = len(common.slot_mapping)
    return MLAInputs(
        drawn_by(seed, TOKENS, shape.num_heads, NOPE + ROPE)[:tokens].to(shape.dtype),
        drawn_by(seed + 7, TOKENS, RANK + ROPE)[:tokens].to(shape.dtype),
        drawn_by(seed + 8, shape.num_heads, NOPE + VALUE, RANK).mul(0.3).to(shape.dtype),
    )


def latent_spec(shape: Shape) -> MLAAttentionSpec:
    """A cache of latent vectors."""
    return MLAAttentionSpec(block_size=shape.block_size, num_kv_heads=1, head_size=RANK + ROPE, dtype=shape.dtype)


class LatentRig(Rig):
    """Dense latent attention.

    Args:
        name: the back end's.
        drafts: draft tokens that a decode may have.
    """

    def __init__(self, name: str, drafts: int = 0) -> None:
        super().__init__(name + "-drafts" * (drafts > 0))
        self.drafts = drafts

    def config(self, shape: Shape, heads: LayerConfig) -> EngineConfig:
        """The run's settings."""
        return EngineConfig(
            max_model_len=MODEL_LEN, dtype=shape.dtype, num_speculative_tokens=self.drafts, layers={"l0": heads}
        )

    @override
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        heads = LatentLayerConfig(shape.num_heads, RANK, NOPE, ROPE, VALUE, shape.scale)
        layer = MLA.layer("l0", heads)
        group = MLA.bind(latent_spec(shape), [layer], self.config(shape, heads), CPU)
        cache = self.pages(clean, shape, (RANK + ROPE,), seed)
        metadata = route(group.builder, common)
        return layer.impl.forward(latent_inputs(common, shape, seed), kv_cache=cache, attn_metadata=metadata)

    @override
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        query, keys, values = self.expanded(clean, shape, dtype, seed)
        return attend(clean, query, keys, values, shape.scale)

    def expanded(
        self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The queries, and all keys and values ``[num_blocks, block_size, num_heads, ...]`` expanded."""
        inputs, pages = latent_inputs(clean, shape, seed), self.pages(clean, shape, (RANK + ROPE,), seed).to(dtype)
        pages.flatten(0, 1)[clean.slot_mapping] = inputs.latent.to(dtype)
        up = torch.einsum("bsl,hdl->bshd", pages[..., :RANK], inputs.kv_up.to(dtype))
        position = pages[..., None, RANK:].expand(-1, -1, shape.num_heads, -1)
        return inputs.query.to(dtype), torch.cat((up[..., :NOPE], position), -1), up[..., NOPE:].contiguous()


class SparseRig(LatentRig):
    """Sparse latent attention over positions drawn at random."""

    @override
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        heads = SparseLatentLayerConfig(shape.num_heads, RANK, NOPE, ROPE, VALUE, shape.scale, topk=TOPK)
        layer = MLA_SPARSE.layer("l0", heads)
        group = MLA_SPARSE.bind(latent_spec(shape), [layer], self.config(shape, heads), CPU)
        cache = self.pages(clean, shape, (RANK + ROPE,), seed)
        new = latent_inputs(common, shape, seed)
        # Tokens of padding select nothing.
        selected = torch.full((len(new.query), TOPK), -1, dtype=torch.int32)
        chosen = self._selected(clean, seed)[: len(new.query)]
        selected[: len(chosen)] = chosen
        metadata = route(group.builder, common)
        inputs = MLASparseInputs(new.query, new.latent, new.kv_up, selected)
        return layer.impl.forward(inputs, kv_cache=cache, attn_metadata=metadata)

    @override
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        query, keys, values = self.expanded(clean, shape, dtype, seed)
        out, selected, size = (
            query.new_zeros(len(query), shape.num_heads, VALUE),
            self._selected(clean, seed),
            shape.block_size,
        )
        starts = ints(clean.query_start_loc_cpu)
        for row in range(clean.num_reqs):
            for token in range(starts[row], starts[row + 1]):
                chosen = [place for place in ints(selected[token]) if place >= 0]
                at = [(int(clean.block_table_tensor[row, place // size]), place % size) for place in chosen]
                key = torch.stack([keys[block, offset] for block, offset in at])
                value = torch.stack([values[block, offset] for block, offset in at])
                weights = torch.einsum("hd,shd->hs", query[token], key).mul(shape.scale).softmax(-1)
                out[token] = torch.einsum("hs,shd->hd", weights, value)
        return out

    def _selected(self, clean: CommonAttentionMetadata, seed: int) -> Tensor:
        generator, starts = torch.Generator().manual_seed(seed), ints(clean.query_start_loc_cpu)
        selected = torch.full((clean.num_actual_tokens, TOPK), -1, dtype=torch.int32)
        for row, length in enumerate(ints(clean.seq_lens_cpu)):
            for token in range(starts[row], starts[row + 1]):
                seen = length - (starts[row + 1] - token) + 1
                chosen = torch.randperm(seen, generator=generator)[:TOPK].sort().values
                selected[token, : len(chosen)] = chosen.int()
        return selected


class IndexRig(Rig):
    """The indexer, on small integers, of which every sum is exact."""

    @override
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        heads = IndexLayerConfig(shape.num_heads, RANK, TOPK, 0.5)
        layer = INDEXER.layer("l0", heads)
        config = EngineConfig(max_model_len=MODEL_LEN, dtype=shape.dtype, layers={"l0": heads})
        spec = MLAAttentionSpec(block_size=shape.block_size, num_kv_heads=1, head_size=RANK, dtype=shape.dtype)
        group = INDEXER.bind(spec, [layer], config, CPU)
        cache = self.pages(clean, shape, (RANK,), seed).round()
        metadata = route(group.builder, common)
        inputs = self._inputs(common, shape, seed)
        return layer.impl.forward(inputs, kv_cache=cache, attn_metadata=metadata).to(shape.dtype)

    @override
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        inputs, cache = self._inputs(clean, shape, seed), self.pages(clean, shape, (RANK,), seed).round()
        cache.flatten(0, 1)[clean.slot_mapping] = inputs.key
        return sparse_reference.select_topk(
            inputs.query,
            inputs.weights,
            cache,
            query_start_loc=clean.query_start_loc,
            seq_lens=clean.seq_lens,
            block_table=clean.block_table_tensor,
            scale=0.5,
            topk=TOPK,
        ).to(dtype)

    def _inputs(self, common: CommonAttentionMetadata, shape: Shape, seed: int) -> IndexerInputs:
        tokens, heads = len(common.slot_mapping), shape.num_heads
        return IndexerInputs(
            drawn_by(seed, TOKENS, heads, RANK)[:tokens].round().to(shape.dtype),
            drawn_by(seed + 7, TOKENS, RANK)[:tokens].round().to(shape.dtype),
            drawn_by(seed + 8, TOKENS, heads)[:tokens].round(),
        )
