"""Inputs and judges of the decaying scan and the delta rule, which differ in one argument only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from genericbuilders.kernels.native import Unavailable, native_library
from genericbuilders.kernels.native.state_scan import NativeScanKernels
from genericbuilders.kernels.state import portable_scan, reference
from genericbuilders.kernels.state.protocols import DecayScan, DeltaScan
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.tolerance import compare
from tests.kernels.state.rows_strategy import make_rows, named_blocks, row_alone

__all__ = [
    "REFERENCE",
    "ScanInputs",
    "ScanKernels",
    "ScanSizes",
    "judge",
    "judge_alone",
    "judge_isolation",
    "judge_pieces",
    "make_inputs",
    "random",
    "random_states",
    "scan_kernels",
]


@dataclass(frozen=True)
class ScanKernels:
    """Both scans of one implementation."""

    decay: DecayScan
    delta: DeltaScan


REFERENCE = ScanKernels(reference.decay_scan, reference.delta_scan)


def scan_kernels(name: str) -> ScanKernels:
    """The native or the portable scans; skips the test where they cannot run."""
    if name == "portable":
        return ScanKernels(portable_scan.decay_scan, portable_scan.delta_scan)
    library = native_library()
    if isinstance(library, Unavailable):
        pytest.skip(library.reason)
    native = NativeScanKernels(library)
    return ScanKernels(native.decay_scan, native.delta_scan)


@dataclass(frozen=True)
class ScanSizes:
    """``heads`` heads of each of ``groups`` groups, and the axes of a state."""

    groups: int
    heads: int
    value: int
    key: int


@dataclass(frozen=True)
class ScanInputs:
    """The arguments of a scan before its states and rows; with ``beta`` those of the delta rule."""

    query: Tensor
    key: Tensor
    value: Tensor
    log_decay: Tensor
    beta: Tensor | None

    def run(self, kernels: ScanKernels, states: Tensor, rows: StateRows) -> Tensor:
        if self.beta is None:
            return kernels.decay(self.query, self.key, self.value, self.log_decay, states, rows)
        return kernels.delta(self.query, self.key, self.value, self.log_decay, self.beta, states, rows)

    def each(self, change: Callable[[Tensor], Tensor]) -> ScanInputs:
        beta = None if self.beta is None else change(self.beta)
        return ScanInputs(change(self.query), change(self.key), change(self.value), change(self.log_decay), beta)

    def double(self) -> ScanInputs:
        return self.each(lambda tensor: tensor.double())

    def tokens(self, chosen: slice) -> ScanInputs:
        return self.each(lambda tensor: tensor[chosen])


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def random_states(num_blocks: int, sizes: ScanSizes, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers in all blocks, the null block too."""
    return random(num_blocks, sizes.groups * sizes.heads, sizes.value, sizes.key, seed=99, dtype=dtype)


def make_inputs(
    tokens: int,
    sizes: ScanSizes,
    *,
    delta: bool,
    strength: float = 1.0,
    expanded: bool = False,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> ScanInputs:
    """Inputs as a mixer has them: views of one projection's output, keys of length 1, decays up to ``e**-strength``."""
    groups, num_heads = sizes.groups, sizes.groups * sizes.heads
    width = groups * sizes.key
    projected = random(tokens, 2 * width + num_heads * sizes.value + 3, seed=seed)
    for first in (0, width):
        vectors = projected[:, first : first + width].view(tokens, groups, sizes.key)
        vectors /= vectors.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-3)
    projected = projected.to(dtype)
    log_decay = -strength * torch.rand(tokens, num_heads, generator=torch.Generator().manual_seed(seed + 1))
    if expanded:
        log_decay = log_decay[:1].expand(tokens, num_heads) if tokens else log_decay
    beta = torch.rand(tokens, num_heads, generator=torch.Generator().manual_seed(seed + 2)).to(dtype)
    return ScanInputs(
        query=projected[:, :width].view(tokens, groups, sizes.key),
        key=projected[:, width : 2 * width].view(tokens, groups, sizes.key),
        value=projected[:, 2 * width : -3].view(tokens, num_heads, sizes.value),
        log_decay=log_decay,
        beta=beta if delta else None,
    )


def judge(kernels: ScanKernels, inputs: ScanInputs, states: Tensor, rows: StateRows) -> None:
    """Run a kernel and compare outputs and stored states with the oracle; nothing else may have changed."""
    # The oracle sums in its states' dtype.
    before, working_states, exact_states = states.clone(), states.clone().float(), states.clone().double()
    result = inputs.run(kernels, states, rows)
    assert (result.shape, result.dtype) == (inputs.value.shape, inputs.value.dtype)
    working = inputs.run(REFERENCE, working_states, rows)
    exact = inputs.double().run(REFERENCE, exact_states, rows)
    named = named_blocks(rows)
    for found in (
        compare(result, working, exact),
        compare(states[named], working_states[named].to(states.dtype), exact_states[named]),
    ):
        assert found.passed, str(found)
    others = [block for block in range(len(states)) if block not in named]
    assert torch.equal(states[others], before[others])


def judge_pieces(
    kernels: ScanKernels, inputs: ScanInputs, states: Tensor, lengths: list[int], *, continued: bool
) -> None:
    """Feed one row of the inputs in pieces, each from the state that the last has left; compare with it fed at once."""
    at_once, working_states, exact_states = states.clone(), states.clone(), states.clone().double()
    whole = make_rows([[sum(lengths)]], [2 if continued else 0], [[1]])
    working = inputs.run(REFERENCE, working_states, whole)
    exact = inputs.double().run(REFERENCE, exact_states, whole)
    parts: list[Tensor] = []
    first, start = 2 if continued else 0, 0
    for length in lengths:
        rows = make_rows([[length]], [first], [[1]])
        parts.append(inputs.tokens(slice(start, start + length)).run(kernels, states, rows))
        first, start = 1, start + length
    for outputs, final in ((torch.cat(parts), states), (inputs.run(kernels, at_once, whole), at_once)):
        for found in (compare(outputs, working, exact), compare(final[1], working_states[1], exact_states[1])):
            assert found.passed, str(found)


def judge_isolation(kernels: ScanKernels, inputs: ScanInputs, states: Tensor, rows: StateRows) -> None:
    """With NaN for all other rows' inputs a row's outputs and states stay the same, to the bit."""
    before = states.clone()
    together = inputs.run(kernels, states, rows)
    for row in range(rows.num_rows):
        alone, tokens = row_alone(rows, row)
        others = torch.ones(rows.num_tokens, dtype=torch.bool)
        others[tokens] = False

        def poison(tensor: Tensor, others: Tensor = others) -> Tensor:
            return tensor.masked_fill(others.view(-1, *[1] * (tensor.dim() - 1)), torch.nan)

        poisoned_states = before.clone()
        assert torch.equal(inputs.each(poison).run(kernels, poisoned_states, rows)[tokens], together[tokens])
        assert torch.equal(poisoned_states[named_blocks(alone)], states[named_blocks(alone)])


def judge_alone(kernels: ScanKernels, inputs: ScanInputs, states: Tensor, rows: StateRows) -> None:
    """A row in a batch of its own has the same outputs and states, to the bit."""
    alone_states = states.clone()
    together = inputs.run(kernels, states, rows)
    for row in range(rows.num_rows):
        alone, tokens = row_alone(rows, row)
        assert torch.equal(inputs.tokens(tokens).run(kernels, alone_states, alone), together[tokens])
    assert torch.equal(states, alone_states)
