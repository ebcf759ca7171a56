"""How far two computations of one thing may lie apart: derived from a float64 run, not guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Comparison", "compare", "compare_to_reference"]

# An implementation may be this many times as wrong as the reference in the same dtype: it sums in another order.
MULTIPLE = 4.0
# And this many roundings more, for inputs so few that the reference is exact by luck.
ROUNDINGS = 4.0


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        passed: whether every element lies within its allowance, and none is NaN where the exact one is not.
        worst: the largest ratio of an element's error to its allowance; at most 1 when passed.
        index: where that is.
        error: the error there.
        allowed: the allowance there.
    """

    passed: bool
    worst: float
    index: tuple[int, ...]
    error: float
    allowed: float

    def __str__(self) -> str:
        verdict = "within" if self.passed else "OUTSIDE"
        return f"{verdict} tolerance: error {self.error:.3e} of {self.allowed:.3e} allowed at {self.index}"


def compare(
    actual: Tensor, working: Tensor, exact: Tensor, *, multiple: float = MULTIPLE, roundings: float = ROUNDINGS
) -> Comparison:
    """Compare ``actual`` with ``exact``, allowing what ``working`` shows to be the dtype's own error.

    The allowance of element ``i`` is ``multiple * max|working - exact|`` plus ``roundings`` times
    ``eps(dtype) * |exact[i]| + eps(float32) * max|exact|`` (the sums inside are float32 for half-precision types).

    Args:
        actual: what is judged; any shape.
        working: the reference's result in ``actual``'s dtype.
        exact: the reference's result in float64 on the same inputs.
        multiple: factor on the reference's own error.
        roundings: further roundings allowed.

    Raises:
        ValueError: the shapes differ, or ``exact`` is not float64.
    """
    if not actual.shape == working.shape == exact.shape:
        raise ValueError(
            f"shapes differ: actual {tuple(actual.shape)}, working {tuple(working.shape)}, exact {tuple(exact.shape)}"
        )
    if exact.dtype != torch.float64:
        raise ValueError(f"exact is {exact.dtype}; it must come from a float64 run")
    if not exact.numel():
        return Comparison(passed=True, worst=0.0, index=(), error=0.0, allowed=0.0)
    own_error = float((working.double() - exact).abs().max())
    inner = torch.promote_types(actual.dtype, torch.float32)
    allowed = multiple * own_error + roundings * (
        torch.finfo(actual.dtype).eps * exact.abs() + torch.finfo(inner).eps * exact.abs().max()
    )
    error = (actual.double() - exact).abs()
    # Where nothing is allowed (all is zero) any error counts in full; NaN counts as infinitely wrong.
    ratio = torch.where(error == 0, 0.0, error / allowed).nan_to_num(nan=float("inf"))
    place = int(ratio.argmax())
    index = tuple(int(axis) for axis in torch.unravel_index(torch.tensor(place), exact.shape))
    worst = float(ratio.flatten()[place])
    return Comparison(
        passed=worst <= 1.0,
        worst=worst,
        index=index,
        error=float(error.flatten()[place]),
        allowed=float(allowed.flatten()[place]),
    )


def compare_to_reference(actual: Tensor, reference: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Comparison:
    """Run ``reference`` on ``inputs`` twice, as they are and in float64, and `compare` ``actual`` with both.

    Args:
        actual: what is judged.
        reference: takes ``inputs`` in order; must run in float64.
        inputs: floating-point tensors.
    """
    return compare(actual, reference(*inputs), reference(*(tensor.double() for tensor in inputs)))
