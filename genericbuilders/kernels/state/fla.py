"""The decaying scan and the gated delta rule by fla-core's Triton kernels.

States are gathered from their pages, handed over, and stored behind the rows' last tokens. What those kernels cannot
do, the portable ones do; which of them run is decided by what the host knows, so that nothing is read back for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.packages import DTYPES, find_package
from genericbuilders.kernels.state import portable_scan
from genericbuilders.kernels.state.portable_conv import read_states, store_states
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.state.validation import check_indices
from genericbuilders.kernels.state.validation_scan import check_scan

__all__ = [
    "DecayChunk",
    "DecayStep",
    "DeltaChunk",
    "DeltaStep",
    "FlaFunctions",
    "FlaScanKernels",
    "find_fla",
    "load_fla",
]

# Rows up to here run token by token, as in fla's own layers; longer ones in chunks of matrix products.
SHORT = 64
# The delta rule's chunks take no larger keys.
MAX_KEY = 256
# e**-104 is 0 in float32; minus infinity would leave differences that are not a number.
LEAST_LOG = -104.0


class DecayStep(Protocol):
    """``fused_recurrent_simple_gla``, as far as it is used here."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        g: Tensor,
        scale: float,
        initial_state: Tensor,
        output_final_state: bool,
        state_v_first: bool,
        cu_seqlens: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Outputs ``[1, num_tokens, num_heads, value_size]`` and final states ``[num_rows, num_heads, value, key]``.

        Args:
            q: ``[1, num_tokens, num_heads, key_size]``.
            k: ``[1, num_tokens, num_heads, key_size]``.
            v: ``[1, num_tokens, num_heads, value_size]``.
            g: ``[1, num_tokens, num_heads]``, float32: the logarithms of the decays.
            scale: factor on queries.
            initial_state: ``[num_rows, num_heads, value_size, key_size]``, float32.
            output_final_state: whether final states are wanted.
            state_v_first: whether values come before keys in states.
            cu_seqlens: ``[num_rows + 1]`` int64. What is derived from it is kept for as long as the same tensor comes.
        """
        ...


class DecayChunk(Protocol):
    """``chunk_simple_gla``, as far as it is used here."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        g: Tensor,
        scale: float,
        initial_state: Tensor,
        output_final_state: bool,
        state_v_first: bool,
        cu_seqlens: Tensor,
        cu_seqlens_cpu: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As `DecayStep`, with ``cu_seqlens_cpu``, int64 too: what it reads of the lengths it reads there, if given."""
        ...


class DeltaStep(Protocol):
    """``fused_recurrent_gated_delta_rule``, as far as it is used here."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        g: Tensor,
        beta: Tensor,
        scale: float,
        initial_state: Tensor,
        output_final_state: bool,
        state_v_first: bool,
        cu_seqlens: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """As `DecayStep`, with ``beta`` like ``g``; ``q`` and ``k`` may have fewer heads, one for several."""
        ...


class DeltaChunk(Protocol):
    """``chunk_gated_delta_rule``, as far as it is used here."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        g: Tensor,
        beta: Tensor,
        scale: float,
        initial_state: Tensor,
        output_final_state: bool,
        state_v_first: bool,
        cu_seqlens: Tensor,
        cu_seqlens_cpu: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As `DeltaStep`, with ``cu_seqlens_cpu`` as in `DecayChunk`."""
        ...


@dataclass(frozen=True)
class FlaFunctions:
    """What is used of fla-core.

    Attributes:
        chunk_decay: the decaying scan by chunks.
        step_decay: the decaying scan token by token.
        chunk_delta: the gated delta rule by chunks.
        step_delta: the gated delta rule token by token.
    """

    chunk_decay: DecayChunk
    step_decay: DecayStep
    chunk_delta: DeltaChunk
    step_delta: DeltaStep


def find_fla() -> str | Unavailable:
    """The version of fla-core, or why it cannot be used; it is not imported.

    Before 0.6 chunks are wrong where a row is empty.
    """
    return find_package("fla", "fla-core", (0, 6))


def load_fla() -> FlaFunctions:
    """Import fla-core.

    Raises:
        ImportError: that fails, or it lacks something. Triton and torch may raise errors of other kinds.
    """
    decay, delta = import_module("fla.ops.simple_gla"), import_module("fla.ops.gated_delta_rule")
    return FlaFunctions(
        chunk_decay=decay.chunk_simple_gla,
        step_decay=decay.fused_recurrent_simple_gla,
        chunk_delta=delta.chunk_gated_delta_rule,
        step_delta=delta.fused_recurrent_gated_delta_rule,
    )


class FlaScanKernels:
    """Both scans with signatures of `genericbuilders.kernels.state.protocols`, by fla-core where it can.

    fla-core runs batches whose rows are one chunk each, so that states are stored behind last tokens only, in float32,
    bfloat16 and float16. Rows of more than 64 tokens need its chunks, which multiply matrices of float32 in the
    precision that a device is fast at: they run in half precision, or where ``torch.set_float32_matmul_precision`` has
    allowed that. All other batches run by the portable kernels.

    In half precision chunks keep what passes between them in half precision too, where the portable kernels keep
    float32. The chunked functions take the rows' lengths from the host where the rows have them there
    (`StateRows.query_start_loc_cpu`), and else read them back from the device; ``chunk_simple_gla`` reads the number of
    its chunks back in any case. The others read nothing back.

    Args:
        functions: gives fla-core's functions, or why there are none; called when a scan first needs them.
    """

    def __init__(self, functions: Callable[[], FlaFunctions | Unavailable]) -> None:
        self._functions = functions

    def decay_scan(
        self, query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, ssm_state: Tensor, rows: StateRows
    ) -> Tensor:
        """Run the decaying scan; see `genericbuilders.kernels.state.protocols.DecayScan`.

        The tensors may have more tokens than the rows; their output is zero.

        Raises:
            ValueError: axes or devices that do not fit, or on the CPU indices; nothing is written.
            TypeError: a tensor is not of floating point, or an index not int32.
        """
        check_scan(query, key, value, log_decay, None, ssm_state, rows)
        functions = self._chosen(rows, query, key, value, log_decay, ssm_state)
        if functions is None:
            return portable_scan.decay_scan(query, key, value, log_decay, ssm_state, rows)
        run: DecayStep = functions.step_decay
        if _longest(rows) > SHORT:
            run = partial(functions.chunk_decay, cu_seqlens_cpu=_starts_on_host(rows))
        heads = value.shape[1] // query.shape[1]
        inputs = _Inputs.of(query, key, value, log_decay, ssm_state, rows)
        out, states = run(
            inputs.query.repeat_interleave(heads, 2),
            inputs.key.repeat_interleave(heads, 2),
            inputs.value,
            g=inputs.log_decay,
            scale=1.0,
            initial_state=inputs.states,
            output_final_state=True,
            state_v_first=True,
            cu_seqlens=inputs.starts,
        )
        return _finish(out, states, value, ssm_state, rows)

    def delta_scan(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        log_decay: Tensor,
        beta: Tensor,
        ssm_state: Tensor,
        rows: StateRows,
    ) -> Tensor:
        """Run the gated delta rule; see `genericbuilders.kernels.state.protocols.DeltaScan`.

        The tensors may have more tokens than the rows; their output is zero.

        Raises:
            ValueError: axes or devices that do not fit, or on the CPU indices; nothing is written.
            TypeError: a tensor is not of floating point, or an index not int32.
        """
        check_scan(query, key, value, log_decay, beta, ssm_state, rows)
        short = _longest(rows) <= SHORT
        fits = short or key.shape[2] <= MAX_KEY
        functions = self._chosen(rows, query, key, value, log_decay, beta, ssm_state) if fits else None
        if functions is None:
            return portable_scan.delta_scan(query, key, value, log_decay, beta, ssm_state, rows)
        run: DeltaStep = functions.step_delta
        if not short:
            run = partial(functions.chunk_delta, cu_seqlens_cpu=_starts_on_host(rows))
        inputs = _Inputs.of(query, key, value, log_decay, ssm_state, rows)
        out, states = run(
            inputs.query,
            inputs.key,
            inputs.value,
            g=inputs.log_decay,
            beta=beta[: rows.num_tokens].float()[None],
            scale=1.0,
            initial_state=inputs.states,
            output_final_state=True,
            state_v_first=True,
            cu_seqlens=inputs.starts,
        )
        return _finish(out, states, value, ssm_state, rows)

    def _chosen(
        self, rows: StateRows, query: Tensor, key: Tensor, value: Tensor, *others: Tensor
    ) -> FlaFunctions | None:
        """fla-core's functions, or ``None`` where the portable kernels are to run."""
        if any(tensor.dtype not in DTYPES for tensor in (query, key, value, *others)):
            return None
        whole = rows.max_chunks == 1 or (rows.last_only and rows.max_chunks)
        if not (whole and rows.num_tokens and value.numel()):
            return None
        exact = torch.get_float32_matmul_precision() == "highest"
        if _longest(rows) > SHORT and exact and _common(query, key, value) == torch.float32:
            return None
        found = self._functions()
        return None if isinstance(found, Unavailable) else found


@dataclass(frozen=True)
class _Inputs:
    """The rows' tokens, as one sequence, and their states.

    Attributes:
        query: ``[1, num_tokens, num_groups, key_size]``.
        key: ``[1, num_tokens, num_groups, key_size]``, of the query's dtype.
        value: ``[1, num_tokens, num_heads, value_size]``, of the query's dtype.
        log_decay: ``[1, num_tokens, num_heads]``, float32.
        states: ``[num_rows, num_heads, value_size, key_size]``, float32.
        starts: ``[num_rows + 1]`` int64, always a new tensor: what fla-core derives from one it keeps.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    log_decay: Tensor
    states: Tensor
    starts: Tensor

    @classmethod
    def of(
        cls, query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, ssm_state: Tensor, rows: StateRows
    ) -> _Inputs:
        if ssm_state.is_cpu:
            check_indices(rows, len(ssm_state))
        dtype, count = _common(query, key, value), rows.num_tokens
        return cls(
            query=query[:count].to(dtype)[None],
            key=key[:count].to(dtype)[None],
            value=value[:count].to(dtype)[None],
            log_decay=log_decay[:count].float().clamp(min=LEAST_LOG)[None],
            states=read_states(ssm_state, rows.initial_state).float(),
            starts=rows.query_start_loc.long(),
        )


def _longest(rows: StateRows) -> int:
    """The most tokens in a row, or more; where rows are one chunk each, that."""
    return min(rows.num_tokens, rows.max_chunk_len * rows.max_chunks)


def _starts_on_host(rows: StateRows) -> Tensor | None:
    """`_Inputs.starts` on the host, likewise always a new tensor."""
    return None if rows.query_start_loc_cpu is None else rows.query_start_loc_cpu.long()


def _common(query: Tensor, key: Tensor, value: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)


def _finish(out: Tensor, states: Tensor, value: Tensor, ssm_state: Tensor, rows: StateRows) -> Tensor:
    """Store the states behind the rows, and give the outputs ``value``'s shape and dtype, zero outside of rows."""
    first, behind = rows.row_chunks[:-1], rows.row_chunks[1:]
    # A row without tokens may have no chunk, and then stores nothing.
    blocks = rows.chunk_state.index_select(0, (behind - 1).clamp_(min=0)).masked_fill_(behind == first, 0)
    store_states(ssm_state, blocks.long(), states)
    tokens = torch.arange(rows.num_tokens, device=value.device)
    outside = (tokens < rows.query_start_loc[0]) | (tokens >= rows.query_start_loc[-1])
    result = out[0].to(value.dtype).masked_fill(outside[:, None, None], 0)
    return result if len(result) == len(value) else F.pad(result, (0, 0, 0, 0, 0, len(value) - len(result)))
