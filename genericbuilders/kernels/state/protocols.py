"""What each kernel of state-space layers computes, by its inputs; every implementation has these signatures."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from genericbuilders.kernels.state.rows import StateRows

__all__ = ["CausalConv", "DecayScan", "DeltaScan", "SelectiveScan"]


class CausalConv(Protocol):
    """Depthwise causal convolution over time, with the last inputs of each row as its state."""

    def __call__(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, conv_state: Tensor, rows: StateRows, *, silu: bool = True
    ) -> Tensor:
        """``out[t, d] = sum_w weight[d, w] * x[t - width + 1 + w, d] + bias[d]``, then SiLU if asked for.

        Args:
            x: ``[num_tokens, conv_dim]``, any stride between tokens, the last one 1.
            weight: ``[conv_dim, width]``, width 1 to 8.
            bias: ``[conv_dim]``, or ``None``.
            conv_state: ``[num_blocks, width - 1, conv_dim]``: inputs before a row's tokens, oldest first; changed.
            rows: which tokens run through which state.
            silu: whether SiLU follows.

        Returns:
            ``[num_tokens, conv_dim]`` of ``x``'s dtype.
        """
        ...


class SelectiveScan(Protocol):
    """Mamba's recurrence (Gu and Dao 2023): a diagonal state matrix for each channel."""

    def __call__(
        self,
        x: Tensor,
        dt: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        d: Tensor | None,
        ssm_state: Tensor,
        rows: StateRows,
    ) -> Tensor:
        """``h = exp(dt * a) * h + dt * b * x``; ``out = h . c + d * x``; ``h`` is ``[state_size]`` for each channel.

        Args:
            x: ``[num_tokens, dim]``.
            dt: ``[num_tokens, dim]``, positive: bias and softplus are applied already.
            a: ``[dim, state_size]``, negative.
            b: ``[num_tokens, state_size]``.
            c: ``[num_tokens, state_size]``.
            d: ``[dim]``, or ``None``.
            ssm_state: ``[num_blocks, dim, state_size]``; changed.
            rows: which tokens run through which state.

        Returns:
            ``[num_tokens, dim]`` of ``x``'s dtype.
        """
        ...


class DecayScan(Protocol):
    """Linear attention whose state decays: Mamba-2's (Dao and Gu 2024) and lightning attention's recurrence."""

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, ssm_state: Tensor, rows: StateRows
    ) -> Tensor:
        """``h = exp(log_decay) * h + value (x) key``; ``out = h @ query``, with ``h`` a ``[value, key]`` for each head.

        Heads share queries and keys in groups: head ``h`` reads group ``h // (num_heads // num_groups)``.

        Args:
            query: ``[num_tokens, num_groups, key_size]``.
            key: ``[num_tokens, num_groups, key_size]``.
            value: ``[num_tokens, num_heads, value_size]``.
            log_decay: ``[num_tokens, num_heads]``, at most 0; any strides, so that it may be expanded.
            ssm_state: ``[num_blocks, num_heads, value_size, key_size]``; changed.
            rows: which tokens run through which state.

        Returns:
            ``[num_tokens, num_heads, value_size]`` of ``value``'s dtype.
        """
        ...


class DeltaScan(Protocol):
    """The gated delta rule (Yang et al. 2024): a decaying state that is corrected towards each value."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        log_decay: Tensor,
        beta: Tensor,
        ssm_state: Tensor,
        rows: StateRows,
    ) -> Tensor:
        """``h = exp(log_decay) * h``; ``h += (beta * (value - h @ key)) (x) key``; ``out = h @ query``.

        Heads share queries and keys in groups: head ``h`` reads group ``h // (num_heads // num_groups)``. Queries are
        scaled, and queries and keys normalised, by the caller.

        Args:
            query: ``[num_tokens, num_groups, key_size]``.
            key: ``[num_tokens, num_groups, key_size]``.
            value: ``[num_tokens, num_heads, value_size]``.
            log_decay: ``[num_tokens, num_heads]``, at most 0.
            beta: ``[num_tokens, num_heads]``, 0 to 1 (to 2 where negative eigenvalues are allowed).
            ssm_state: ``[num_blocks, num_heads, value_size, key_size]``; changed.
            rows: which tokens run through which state.

        Returns:
            ``[num_tokens, num_heads, value_size]`` of ``value``'s dtype.
        """
        ...
