"""What happens to the scores of attention between the product of query and key and the softmax."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["PLAIN", "Scoring"]


@dataclass(frozen=True, eq=False)
class Scoring:
    """Beside scale and causal mask: the rules by which scores become weights, in the order in which they apply.

    Attributes:
        soft_cap: scores become ``soft_cap * tanh(scores / soft_cap)`` (Gemma 2); ``None`` leaves them.
        alibi_slopes: ``[num_heads]`` float32: ``slope * (key position - query position)`` is added (Press et al. 2022).
        sliding_window: tokens that a token sees, its own included: the last ones, or, without the causal mask, those
            nearer than that on both sides; ``None`` for all.
        sinks: ``[num_heads]`` float32: logits that take their share in the softmax and give nothing (GPT-OSS).

    Raises:
        ValueError: ``soft_cap`` is not positive, the window below 1 token, or a tensor is no list of float32.
    """

    soft_cap: float | None = None
    alibi_slopes: Tensor | None = None
    sliding_window: int | None = None
    sinks: Tensor | None = None

    def __post_init__(self) -> None:
        if self.soft_cap is not None and not self.soft_cap > 0:
            raise ValueError(f"soft_cap is {self.soft_cap}; it must be positive, or None for no cap")
        if self.sliding_window is not None and self.sliding_window < 1:
            raise ValueError(f"sliding_window is {self.sliding_window}; it must be at least 1 token, or None for all")
        for name, tensor in (("alibi_slopes", self.alibi_slopes), ("sinks", self.sinks)):
            if tensor is not None and (tensor.dim() != 1 or tensor.dtype != torch.float32):
                raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}; it must be float32 [num_heads]")

    def check_heads(self, num_heads: int) -> None:
        """Check that each query head has its slope and its sink.

        Raises:
            ValueError: there are more or fewer.
        """
        for name, tensor in (("alibi_slopes", self.alibi_slopes), ("sinks", self.sinks)):
            if tensor is not None and len(tensor) != num_heads:
                raise ValueError(f"{name} has {len(tensor)} entries for {num_heads} query heads; give one for each")


PLAIN = Scoring()
"""Nothing happens to the scores."""
