"""The shapes of sparse attention's kernels: every implementation is called in the same way."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

__all__ = ["SelectTopk", "SparseAttention"]


class SelectTopk(Protocol):
    """Selection of the keys of each token's own request that score best, by DeepSeek-V3.2's lightning indexer."""

    def __call__(
        self,
        query: Tensor,
        weights: Tensor,
        key_cache: Tensor,
        *,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_table: Tensor,
        scale: float,
        topk: int,
        max_query_len: int | None = None,
        max_seq_len: int | None = None,
    ) -> Tensor:
        """Select; of ``q`` new tokens in a sequence of ``s``, token ``i`` does so among positions 0 to ``s - q + i``.

        Key ``k`` scores ``sum over heads h of weights[h] * relu(scale * query[h] . k)`` (DeepSeek-V3.2-Exp, 2025,
        equation 1), in float32. Of equal scores the earlier position is taken; NaN counts as the highest.

        Args:
            query: ``[num_tokens, num_heads, head_size]``.
            weights: ``[num_tokens, num_heads]`` float32.
            key_cache: ``[num_blocks, block_size, head_size]``, the new tokens' keys already written.
            query_start_loc: ``[num_reqs + 1]`` int32.
            seq_lens: ``[num_reqs]`` int32, or longer (a padded buffer).
            block_table: ``[num_reqs, max_blocks]`` int32, or longer; entries beyond a sequence are not read.
            scale: factor on the products.
            topk: the most positions of a token.
            max_query_len: a bound on the rows' new tokens, where the caller knows one.
            max_seq_len: a bound on ``seq_lens``; with both bounds a device need not be asked.

        Returns:
            ``[num_tokens, topk]`` int32: each token's positions in ascending order, then -1 where it has fewer. All -1
            for padding, which is what lies beyond ``query_start_loc[-1]``, and for tokens of a request of length 0.

        Raises:
            ValueError: shapes that do not fit each other, ``topk`` below 1, a block table too narrow for a sequence, or
                more new tokens than the sequence has.
            TypeError: dtypes that differ.
        """
        ...


class SparseAttention(Protocol):
    """Attention of each token over slots of its own, all heads over the same vectors."""

    def __call__(self, query: Tensor, cache: Tensor, slots: Tensor, *, value_size: int, scale: float) -> Tensor:
        """Attend; a vector's front is its value.

        Args:
            query: ``[num_tokens, num_heads, head_size]``.
            cache: ``[num_blocks, block_size, head_size]``.
            slots: ``[num_tokens, num_keys]`` int64: ``block * block_size + offset``; -1 is nothing, wherever it stands.
                No slot stands twice in a row.
            value_size: elements of a value; at most ``head_size``.
            scale: factor on the scores before the softmax.

        Returns:
            ``[num_tokens, num_heads, value_size]``, of the query's dtype; zeros for a token without slots.

        Raises:
            ValueError: shapes that do not fit each other, or, where the slots are on the host, a slot outside the
                cache.
            TypeError: dtypes that differ.
        """
        ...
