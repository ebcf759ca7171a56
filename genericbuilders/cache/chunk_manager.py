"""The blocks of layers that attend within chunks."""

from __future__ import annotations

from typing_extensions import TypeVar, override

from genericbuilders.cache.block_pool import BlockPool
from genericbuilders.cache.tail_manager import TailManager
from genericbuilders.config import EngineConfig
from genericbuilders.specs import ChunkedLocalAttentionSpec, UniformTypeKVCacheSpecs, iter_layer_specs

__all__ = ["ChunkedLocalManager"]

L = TypeVar("L", bound=ChunkedLocalAttentionSpec | UniformTypeKVCacheSpecs, default=ChunkedLocalAttentionSpec)


class ChunkedLocalManager(TailManager[L]):
    """The chunk that a request's next token lies in is kept.

    A request that starts at a chunk's start reads nothing, so that any prefix that ends there counts as found.

    Attributes:
        attention_chunk_size: tokens in a chunk.

    Raises:
        NoManagerError: the spec describes no chunks, or gives blocks back in a way of its own.
    """

    def __init__(self, spec: L, pool: BlockPool, config: EngineConfig | None = None) -> None:
        chunks = [layer for layer in iter_layer_specs(spec) if isinstance(layer, ChunkedLocalAttentionSpec)]
        self.attention_chunk_size: int = chunks[0].attention_chunk_size if chunks else 1
        key = (ChunkedLocalAttentionSpec, self.attention_chunk_size) if chunks else None
        super().__init__(spec, pool, key, config)

    @override
    def first_needed_token(self, num_computed_tokens: int) -> int:
        return num_computed_tokens // self.attention_chunk_size * self.attention_chunk_size
