"""Which states each request keeps in a group of state-space layers."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import TypeVar, override

from genericbuilders.cache.block_hash import BlockHash
from genericbuilders.cache.block_pool import NULL_BLOCK, BlockPool, OutOfBlocksError
from genericbuilders.cache.manager import KVCacheManager, NoManagerError, told
from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.specs import MambaCacheMode, MambaSpec, UniformTypeKVCacheSpecs, cdiv, iter_layer_specs

__all__ = ["MambaManager"]

Z = TypeVar("Z", bound=MambaSpec | UniformTypeKVCacheSpecs, default=MambaSpec)


class MambaManager(KVCacheManager[Z]):
    """States of fixed size, by the mode of the spec (`MambaSpec.mamba_cache_mode`).

    * ``"none"``: one live state a request in column 0, and one for each draft token in those behind it. Nothing is
      ever found again.
    * ``"align"``: column ``i`` stands for tokens ``i * block_size`` to ``(i + 1) * block_size``. A request holds the
      block that its last piece ended in and the one that its next piece ends in; earlier ones are given back, and their
      columns have the null block. A state is found again where a piece ended exactly at a block's end, so `max_piece`
      ends pieces there.
    * ``"all"``: the same columns, all kept. A kernel stores the state at each block end that it crosses, so every full
      block is found again.

    A layer starts from the state in column ``(computed - 1) // block_size`` and stores it, after ``new`` tokens, in
    column ``(computed + new - 1) // block_size``. A prefix that is found again is one state: all columns before it have
    the null block.

    Attributes:
        mode: the spec's mode.
        num_speculative_blocks: states for draft tokens.

    Raises:
        NoManagerError: the spec describes no states, keeps them in a way of its own (its ``allocation_key`` is
            another), or keeps states of draft tokens in another mode than ``"none"``.
    """

    def __init__(self, spec: Z, pool: BlockPool) -> None:
        states = [layer for layer in iter_layer_specs(spec) if isinstance(layer, MambaSpec)]
        # Layers in a wrapper agree on the allocation key, so the first one speaks for all.
        if not states or spec.allocation_key != _key(states[0].mamba_cache_mode, states[0].num_speculative_blocks):
            raise NoManagerError(f"MambaManager does not serve {told(spec)}: it keeps states as MambaSpec says")
        self.mode: MambaCacheMode = states[0].mamba_cache_mode
        self.num_speculative_blocks: int = states[0].num_speculative_blocks
        if self.num_speculative_blocks and self.mode != "none":
            raise NoManagerError(
                f"MambaManager does not serve {told(spec)}: states of {self.num_speculative_blocks} draft tokens are "
                f"kept in the mode 'none' only, not in {self.mode!r}"
            )
        super().__init__(spec, pool)
        # In "align", the column of the older one of a request's two states.
        self._older: dict[str, int] = {}

    @property
    @override
    def finds_prefixes(self) -> bool:
        return self.mode != "none"

    @property
    @override
    def unit(self) -> str:
        return "states"

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        columns = self._num_columns(num_tokens)
        return min(columns, 2) if self.mode == "align" else columns

    @override
    def max_piece(self, num_computed_tokens: int, wanted: int) -> int:
        if self.mode != "align":
            return wanted
        # A piece that stays within a block may end anywhere: otherwise a small budget would starve the request.
        block_end = (num_computed_tokens + wanted) // self.block_size * self.block_size
        return block_end - num_computed_tokens if block_end > num_computed_tokens else wanted

    @override
    def num_new_blocks_needed(self, request_id: str, num_tokens: int, hit: Sequence[int] = ()) -> int:
        missing = self._num_columns(num_tokens) - len(self.blocks_of(request_id) or hit)
        # However many block ends a piece crosses, only the state at its own end is stored.
        return max(0, min(missing, 1) if self.mode == "align" else missing)

    @override
    def num_given_back(self, request_id: str, num_tokens: int) -> int:
        older = self._older.get(request_id)
        if older is None or self._num_columns(num_tokens) <= len(self._blocks[request_id]):
            return 0
        return int(self.pool.ref_count(self._blocks[request_id][older]) == 1)

    @override
    def allocate(self, request_id: str, num_tokens: int) -> Sequence[int]:
        if self.mode != "align":
            return super().allocate(request_id, num_tokens)
        missing = self._num_columns(num_tokens) - len(self.blocks_of(request_id))
        if missing <= 0:
            return ()
        if not self.pool.num_free_blocks + self.num_given_back(request_id, num_tokens):
            raise OutOfBlocksError(
                f"request {request_id!r} needs 1 state for {num_tokens} tokens, but none of "
                f"{self.pool.num_usable_blocks} is free; free a request's states first, or make the pool larger"
            )
        columns = self._blocks.setdefault(request_id, [])
        older = self._older.pop(request_id, None)
        if older is not None:
            self.pool.free_blocks((columns[older],))
            columns[older] = NULL_BLOCK
        if columns:
            self._older[request_id] = len(columns) - 1
        columns.extend([NULL_BLOCK] * (missing - 1))
        new = self.pool.get_new_blocks(1)
        columns.extend(new)
        return new

    @override
    def cache_full_blocks(self, request_id: str, hashes: Sequence[BlockHash], num_computed_tokens: int) -> None:
        if self.mode == "none":
            return
        if self.mode == "all":
            super().cache_full_blocks(request_id, hashes, num_computed_tokens)
            return
        full, beyond = divmod(num_computed_tokens, self.block_size)
        # Only the last piece's end is known to be a state that some block holds.
        if beyond or not 0 < full <= len(hashes):
            return
        columns = self.blocks_of(request_id)
        if full > len(columns):
            raise ValueError(
                f"request {request_id!r} has {len(columns)} columns of {self.block_size} tokens, too few for "
                f"{num_computed_tokens} computed tokens; allocate before computing"
            )
        if columns[full - 1] != NULL_BLOCK:
            self.pool.cache_block(columns[full - 1], hashes[full - 1])

    @override
    def free(self, request_id: str) -> None:
        self._older.pop(request_id, None)
        super().free(request_id)

    @override
    def first_needed_column(self, num_columns: int) -> int:
        """The last one: a layer reads one state, whatever lies before it."""
        return max(0, num_columns - 1)

    def _num_columns(self, num_tokens: int) -> int:
        if self.mode == "none":
            return 1 + self.num_speculative_blocks if num_tokens > 0 else 0
        return cdiv(num_tokens, self.block_size)


def _key(mode: MambaCacheMode, num_speculative_blocks: int) -> tuple[type[MambaSpec], str, int]:
    return (MambaSpec, mode, num_speculative_blocks)
