"""A linear layer in the best form that this machine offers."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["PackedLinear"]

# The number of rows oneDNN is told to expect when it lays out a weight. Every layout computes every number of rows.
EXPECTED_ROWS = 32


class _Reorder(Protocol):
    def __call__(self, weight: Tensor, batch_size: int | None, /) -> Tensor: ...


class _LinearPointwise(Protocol):
    def __call__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        attr: str,
        scalars: list[float | None],
        algorithm: str | None,
        /,
    ) -> Tensor: ...


class _LinearBinary(Protocol):
    def __call__(self, hidden: Tensor, other: Tensor, weight: Tensor, bias: Tensor | None, attr: str, /) -> Tensor: ...


class PackedLinear:
    """``hidden @ weight.T + bias``; on a CPU the weight is laid out once for oneDNN.

    The packed copy is as large as the weight, and the weight itself is let go: a caller that drops it, too, pays
    for it once.

    Args:
        weight: ``[out_features, in_features]``, float32 or bfloat16 to be packed; any dtype otherwise.
        bias: ``[out_features]``, or ``None``.
        expected_rows: rows of the input that the layout is chosen for.
        pack: ``False`` keeps the plain weight.

    Raises:
        ValueError: weight and bias do not fit each other.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, *, expected_rows: int = EXPECTED_ROWS, pack: bool = True
    ) -> None:
        if weight.dim() != 2 or (bias is not None and bias.shape != weight.shape[:1]):
            raise ValueError(
                f"weight {tuple(weight.shape)} and bias {None if bias is None else tuple(bias.shape)} must be "
                "[out_features, in_features] and [out_features]"
            )
        self.out_features: int = weight.shape[0]
        self.in_features: int = weight.shape[1]
        self.dtype: torch.dtype = weight.dtype
        self.device: torch.device = weight.device
        self.bias: Tensor | None = None if bias is None else bias.detach()
        self._linear: _LinearPointwise | None = None
        self._linear_binary: _LinearBinary | None = None
        self._weight = weight.detach()
        if pack:
            self._pack(expected_rows)

    @property
    def packed(self) -> bool:
        """Whether the weight is in oneDNN's own layout."""
        return self._linear is not None

    def __call__(self, hidden: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            hidden: ``[..., in_features]`` of the weight's dtype.

        Returns:
            ``[..., out_features]``.
        """
        if self._linear is None:
            return F.linear(hidden, self._weight, self.bias)
        return self._linear(hidden, self._weight, self.bias, "none", [], "")

    def add_to(self, residual: Tensor, hidden: Tensor) -> Tensor:
        """``residual + self(hidden)``, the sum in the same pass where the layer is packed.

        Args:
            residual: ``[num_tokens, out_features]``.
            hidden: ``[num_tokens, in_features]``.

        Returns:
            ``[num_tokens, out_features]``.
        """
        if self._linear_binary is None:
            return residual + self(hidden)
        return self._linear_binary(hidden, residual, self._weight, self.bias, "add")

    def __repr__(self) -> str:
        form = "oneDNN" if self.packed else "plain"
        return f"PackedLinear({self.in_features} -> {self.out_features}, {self.dtype}, {form})"

    def _pack(self, expected_rows: int) -> None:
        """Lay the weight out, and keep that only if a probe shows that it can be used here."""
        if self.device.type != "cpu" or self.dtype not in (torch.float32, torch.bfloat16):
            return
        if self.dtype == torch.bfloat16 and not _runs_bfloat16():
            return
        namespace: object = getattr(torch.ops, "mkldnn", None)
        reorder: _Reorder | None = getattr(namespace, "_reorder_linear_weight", None)
        linear: _LinearPointwise | None = getattr(namespace, "_linear_pointwise", None)
        binary: _LinearBinary | None = getattr(linear, "binary", None)
        if reorder is None or linear is None or binary is None:
            return
        try:
            packed = reorder(self._weight.contiguous(), expected_rows)
            one = self._weight.new_zeros(1, self.in_features)
            linear(one, packed, self.bias, "none", [], "")
            binary(one, self._weight.new_zeros(1, self.out_features), packed, self.bias, "add")
        except RuntimeError:
            # Private operators: another torch may refuse what this one takes. The plain weight always works.
            return
        self._weight, self._linear, self._linear_binary = packed, linear, binary


def _runs_bfloat16() -> bool:
    """Whether oneDNN takes bfloat16 on this CPU (it needs at least AVX-512 or AVX-NE-CONVERT)."""
    namespace: object = getattr(torch.ops, "mkldnn", None)
    supported: object = getattr(namespace, "_is_mkldnn_bf16_supported", None)
    return callable(supported) and bool(supported())
