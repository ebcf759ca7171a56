"""The shapes of the kernels: every implementation is called in the same way."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from genericbuilders.kernels.scoring import PLAIN, Scoring

__all__ = ["GatedActivation", "PagedAttention", "RmsNorm", "RopeAndCache", "VarlenAttention", "WriteKVCache"]


class WriteKVCache(Protocol):
    """Store new keys and values into their slots of a paged cache."""

    def __call__(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """Write token ``i`` to slot ``slot_mapping[i]``; slot -1 writes nothing.

        Args:
            key: ``[num_tokens, num_kv_heads, head_size]``.
            value: ``[num_tokens, num_kv_heads, value_head_size]``.
            key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``, changed in place.
            value_cache: ``[num_blocks, block_size, num_kv_heads, value_head_size]``, changed in place.
            slot_mapping: ``[num_tokens]`` int64 or longer (a padded buffer); ``block * block_size + offset``.
        """
        ...


class PagedAttention(Protocol):
    """Attention of new tokens over the sequences that a paged cache holds."""

    def __call__(
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        *,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_table: Tensor,
        scale: float,
        causal: bool,
        max_query_len: int | None = None,
        max_seq_len: int | None = None,
        out: Tensor | None = None,
        scoring: Scoring = PLAIN,
        lse: Tensor | None = None,
    ) -> Tensor:
        """Attend; row ``i`` of a request with ``q`` new tokens and length ``s`` sits at position ``s - q + i``.

        Tokens at and beyond ``query_start_loc[-1]`` are padding and come out as zeros, and so do the tokens of
        a request whose ``seq_lens`` is 0. What a window hides from all of a request's new tokens is never read: its
        blocks may belong to others by now.

        Args:
            query: ``[num_tokens, num_heads, head_size]``; ``num_heads`` is a multiple of ``num_kv_heads``.
            key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``, the new tokens already written.
            value_cache: ``[num_blocks, block_size, num_kv_heads, value_head_size]``.
            query_start_loc: ``[num_reqs + 1]`` int32.
            seq_lens: ``[num_reqs]`` int32, or longer (a padded buffer).
            block_table: ``[num_reqs, max_blocks]`` int32, or longer; entries beyond a sequence are not read.
            scale: factor on the scores before the softmax.
            causal: whether a token sees only itself and what came before.
            max_query_len: a bound on the rows' new tokens, where the caller knows one.
            max_seq_len: a bound on ``seq_lens``; with both bounds a device need not be asked.
            out: ``[num_tokens, num_heads, value_head_size]`` to write to; made when ``None``.
            scoring: what happens to the scores before the softmax.
            lse: ``[num_tokens, num_heads]`` float32, any strides, to write to: the natural logarithm of the sum of the
                scores' exponentials, a sink's included. -inf for a token that sees no key and has no sink, for
                padding and for the tokens of a request of length 0.

        Returns:
            ``[num_tokens, num_heads, value_head_size]``, of the query's dtype.

        Raises:
            ValueError: shapes that do not fit each other, a block table too narrow for a sequence, or, under
                ``causal``, more new tokens than the sequence has.
            TypeError: dtypes that differ.
        """
        ...


class VarlenAttention(Protocol):
    """Attention between queries and keys that lie one row behind the other, without a cache."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        scale: float,
        causal: bool,
        scoring: Scoring = PLAIN,
        lse: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Attend within each row; its last query sits where its last key sits.

        Args:
            query: ``[num_tokens, num_heads, head_size]``; ``num_heads`` is a multiple of ``num_kv_heads``.
            key: ``[num_keys, num_kv_heads, head_size]``.
            value: ``[num_keys, num_kv_heads, value_head_size]``.
            cu_seqlens_q: ``[num_rows + 1]`` int32: row ``i`` has queries from ``cu_seqlens_q[i]`` to the next entry.
            cu_seqlens_k: ``[num_rows + 1]`` int32, for the keys. A row without keys comes out as zeros.
            max_seqlen_q: a bound on the rows' queries.
            max_seqlen_k: a bound on the rows' keys.
            scale: factor on the scores before the softmax.
            causal: whether a query sees only the keys up to its own place; a row then has no fewer keys than queries.
            scoring: what happens to the scores before the softmax.
            lse: ``[num_tokens, num_heads]`` float32 to write to, as for `PagedAttention`.
            out: ``[num_tokens, num_heads, value_head_size]`` to write to; made when ``None``.

        Returns:
            ``[num_tokens, num_heads, value_head_size]``, of the query's dtype; zeros beyond ``cu_seqlens_q[-1]``.

        Raises:
            ValueError: shapes that do not fit each other, bounds outside the tensors, or, under ``causal``, fewer keys
                than queries.
            TypeError: dtypes that differ.
        """
        ...


class RopeAndCache(Protocol):
    """Rotary embedding of queries and keys, fused with the write to the cache."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cos: Tensor,
        sin: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        slot_mapping: Tensor,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        """Rotate ``query`` and ``key`` (rotate-half form) and store key and value into their slots.

        Args:
            query: ``[num_tokens, num_heads, head_size]``; changed in place when ``out`` is ``None``.
            key: ``[num_tokens, num_kv_heads, head_size]``; not changed.
            value: ``[num_tokens, num_kv_heads, value_head_size]``.
            cos: ``[num_tokens, rotary_dim]``, of the query's dtype or float32; ``rotary_dim <= head_size``.
            sin: ``[num_tokens, rotary_dim]``, like ``cos``.
            key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``, changed in place.
            value_cache: ``[num_blocks, block_size, num_kv_heads, value_head_size]``, changed in place.
            slot_mapping: ``[num_tokens]`` int64, or longer; -1 writes nothing.
            out: ``[num_tokens, num_heads, head_size]`` for the rotated queries.

        Returns:
            The rotated queries: ``out``, or ``query`` itself.
        """
        ...


class RmsNorm(Protocol):
    """Root-mean-square normalisation (Zhang and Sennrich 2019), with the residual's addition fused."""

    def __call__(
        self,
        hidden: Tensor,
        weight: Tensor,
        epsilon: float,
        *,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Normalise ``hidden``, or the sum ``hidden + residual``, which then replaces ``residual`` in place.

        Args:
            hidden: ``[num_tokens, hidden_size]``.
            weight: ``[hidden_size]``, of the same dtype.
            epsilon: added to the mean square.
            residual: ``[num_tokens, hidden_size]``; becomes ``hidden + residual``.
            out: ``[num_tokens, hidden_size]``; may be ``hidden`` itself.

        Returns:
            ``[num_tokens, hidden_size]``.
        """
        ...


class GatedActivation(Protocol):
    """A gated activation over a fused projection, such as SwiGLU (Shazeer 2020)."""

    def __call__(self, gate_up: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Compute ``activation(gate) * up``, where ``gate_up`` holds the gate in its first half.

        Args:
            gate_up: ``[num_tokens, 2 * intermediate_size]``.
            out: ``[num_tokens, intermediate_size]``.

        Returns:
            ``[num_tokens, intermediate_size]``.
        """
        ...
