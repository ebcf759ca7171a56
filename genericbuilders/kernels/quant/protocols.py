"""The shapes of the kernels of quantised caches: every implementation is called in the same way."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from genericbuilders.kernels.quant.slots import SlotCodec

__all__ = ["QuantisedAttention", "WriteSlots"]


class QuantisedAttention(Protocol):
    """Attention of new tokens over the sequences that a quantised paged cache holds."""

    def __call__(
        self,
        query: Tensor,
        cache: Tensor,
        codec: SlotCodec,
        *,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_table: Tensor,
        scale: float,
        causal: bool,
        max_query_len: int | None = None,
        max_seq_len: int | None = None,
    ) -> Tensor:
        """Attend; which rows see what, and what comes out as zeros, is as for `genericbuilders.kernels.protocols`.

        Args:
            query: ``[num_tokens, num_heads, head_size]``; ``num_heads`` is a multiple of ``num_kv_heads``.
            cache: ``[num_blocks, num_kv_heads, block_size, slot_bytes]`` uint8, the new tokens already written.
            codec: of the cache.
            query_start_loc: ``[num_reqs + 1]`` int32.
            seq_lens: ``[num_reqs]`` int32, or longer (a padded buffer).
            block_table: ``[num_reqs, max_blocks]`` int32, or longer; entries beyond a sequence are not read.
            scale: factor on the scores before the softmax.
            causal: whether a token sees only itself and what came before.
            max_query_len: a bound on the rows' new tokens, where the caller knows one.
            max_seq_len: a bound on ``seq_lens``.

        Returns:
            ``[num_tokens, num_heads, head_size]``, of the query's dtype.

        Raises:
            ValueError: shapes that do not fit each other, a block table too narrow for a sequence, or, under
                ``causal``, more new tokens than the sequence has.
            TypeError: dtypes that are not served.
        """
        ...


class WriteSlots(Protocol):
    """Quantise new keys and values, and store them into their slots of a paged cache."""

    def __call__(self, key: Tensor, value: Tensor, cache: Tensor, slot_mapping: Tensor, codec: SlotCodec) -> None:
        """Write token ``i`` to slot ``slot_mapping[i]``; slot -1 writes nothing.

        Args:
            key: ``[num_tokens, num_kv_heads, head_size]``.
            value: ``[num_tokens, num_kv_heads, head_size]``.
            cache: ``[num_blocks, num_kv_heads, block_size, slot_bytes]`` uint8, changed in place.
            slot_mapping: ``[num_tokens]`` int64, or longer (a padded buffer).
            codec: of the cache.

        Raises:
            ValueError: ``slot_mapping`` is shorter than the keys, or, on a CPU, names a slot that there is not.
        """
        ...
