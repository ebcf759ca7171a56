"""Which CUDA graphs a run may use, at which sizes, and which batches fit them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from genericbuilders.builder import AttentionCGSupport
from genericbuilders.specs import round_up

__all__ = [
    "CUDAGraphMode",
    "CUDAGraphResolution",
    "Counts",
    "UniformPadding",
    "capture_sizes",
    "choose_padded_size",
    "is_uniform_decode",
    "pad_indptr",
    "resolve_cudagraph_mode",
]

Counts: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]
"""One count a row, ``[num_reqs]``, on the host."""


class CUDAGraphMode(Enum):
    """Which graphs a run captures.

    A full graph holds the whole forward pass, attention included; piecewise graphs leave attention out, so they ask
    nothing of a back end. A uniform decode is a batch in which every row brings the same few tokens.
    """

    NONE = "none"
    PIECEWISE = "piecewise"
    FULL_DECODE_ONLY = "full_decode_only"
    FULL = "full"
    FULL_AND_PIECEWISE = "full_and_piecewise"

    @property
    def decode_mode(self) -> CUDAGraphMode:
        """The graph of a uniform decode: ``FULL``, ``PIECEWISE`` or ``NONE``."""
        if self in (CUDAGraphMode.FULL_DECODE_ONLY, CUDAGraphMode.FULL_AND_PIECEWISE):
            return CUDAGraphMode.FULL
        return self

    @property
    def mixed_mode(self) -> CUDAGraphMode:
        """The graph of any other batch: ``FULL``, ``PIECEWISE`` or ``NONE``."""
        if self is CUDAGraphMode.FULL_DECODE_ONLY:
            return CUDAGraphMode.NONE
        if self is CUDAGraphMode.FULL_AND_PIECEWISE:
            return CUDAGraphMode.PIECEWISE
        return self


@dataclass(frozen=True)
class CUDAGraphResolution:
    """What became of a requested mode.

    Attributes:
        mode: the mode to run with.
        limiting_backend: the back end whose weak support lowered the mode; ``None`` if none did.
        reason: why, in words for the user.
    """

    mode: CUDAGraphMode
    limiting_backend: str | None
    reason: str


def resolve_cudagraph_mode(
    requested: CUDAGraphMode,
    supports: Sequence[tuple[str, AttentionCGSupport]],
    *,
    uniform_query_len: int,
    piecewise_available: bool = True,
) -> CUDAGraphResolution:
    """The most of ``requested`` that every back end of the run supports.

    One graph holds the layers of all groups, so the weakest support decides: full graphs of any batch need ``ALWAYS``;
    of a uniform decode ``UNIFORM_BATCH``, or ``UNIFORM_SINGLE_TOKEN_DECODE`` if rows bring one token each.

    Args:
        requested: the mode that the user asked for.
        supports: name and support of each group's back end. Empty if the model has none: nothing limits then.
        uniform_query_len: tokens that each row of a uniform decode brings: 1 and the draft tokens.
        piecewise_available: whether the model can be captured piecewise at all.

    Raises:
        ValueError: ``uniform_query_len`` is below 1.
    """
    _require_query_len(uniform_query_len)
    # By name among equals, so that the order of groups does not matter.
    weakest = min(supports, key=lambda pair: (pair[1], pair[0]), default=None)
    support = AttentionCGSupport.ALWAYS if weakest is None else weakest[1]
    decode_needs = (
        AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE if uniform_query_len == 1 else AttentionCGSupport.UNIFORM_BATCH
    )
    supported = _lower(requested, support, decode_needs)
    mode = supported if piecewise_available else _without_piecewise(supported)

    parts: list[str] = []
    limiting: str | None = None
    if weakest is not None and supported is not requested:
        limiting = weakest[0]
        needed = AttentionCGSupport.ALWAYS if requested.mixed_mode is CUDAGraphMode.FULL else decode_needs
        parts.append(
            f"back end {limiting!r} supports {support.name}, and {requested.name} needs {needed.name} where a uniform "
            f"decode has uniform_query_len {uniform_query_len}"
        )
    if mode is not supported:
        parts.append("the model cannot be captured piecewise")
    if not parts:
        return CUDAGraphResolution(mode, None, f"{mode.name} as requested: every back end supports it")
    return CUDAGraphResolution(mode, limiting, f"{requested.name} became {mode.name}: {'; '.join(parts)}")


def _lower(requested: CUDAGraphMode, support: AttentionCGSupport, decode_needs: AttentionCGSupport) -> CUDAGraphMode:
    if requested.mixed_mode is CUDAGraphMode.FULL and support < AttentionCGSupport.ALWAYS:
        requested = CUDAGraphMode.FULL_AND_PIECEWISE
    if requested.decode_mode is CUDAGraphMode.FULL and support < decode_needs:
        return CUDAGraphMode.PIECEWISE
    return requested


def _without_piecewise(mode: CUDAGraphMode) -> CUDAGraphMode:
    if mode is CUDAGraphMode.FULL_AND_PIECEWISE:
        return CUDAGraphMode.FULL_DECODE_ONLY
    return CUDAGraphMode.NONE if mode is CUDAGraphMode.PIECEWISE else mode


def capture_sizes(sizes: Iterable[int], uniform_query_len: int, max_num_tokens: int) -> tuple[int, ...]:
    """The sizes to capture uniform decodes at, in tokens, ascending: multiples of ``uniform_query_len``.

    Each size is rounded up. One that rounding takes beyond the limit becomes the largest multiple within it, so that
    the largest batches have a graph; sizes that were beyond it already are left out.

    Args:
        sizes: the sizes asked for, in tokens, in any order.
        uniform_query_len: tokens that each row brings.
        max_num_tokens: tokens in the largest batch.

    Raises:
        ValueError: a size, ``uniform_query_len`` or ``max_num_tokens`` is below 1.
    """
    _require_query_len(uniform_query_len)
    if max_num_tokens < 1:
        raise ValueError(f"max_num_tokens is {max_num_tokens}; it must be at least 1")
    wanted = tuple(sizes)
    if wanted and min(wanted) < 1:
        raise ValueError(f"graph sizes are {list(wanted)}; each must be at least 1 token")
    largest = max_num_tokens // uniform_query_len * uniform_query_len
    rounded = {min(round_up(size, uniform_query_len), largest) for size in wanted if size <= max_num_tokens}
    return tuple(sorted(rounded - {0}))


def choose_padded_size(num_tokens: int, sizes: Iterable[int]) -> int | None:
    """The smallest captured size that holds ``num_tokens`` tokens; ``None`` if the batch must run without a graph."""
    return min((size for size in sizes if size >= num_tokens), default=None)


@dataclass(frozen=True)
class UniformPadding:
    """How a uniform decode lies in a graph that was captured for more rows.

    The rows after the real ones are neutral: no new token, an empty sequence, the null block, slot -1.

    Attributes:
        num_reqs: real rows.
        uniform_query_len: tokens that each row brings.
        num_padded_tokens: tokens of the graph; a multiple of ``uniform_query_len``.

    Raises:
        ValueError: ``num_reqs`` is negative, ``uniform_query_len`` below 1, the graph's size no multiple, or too small.
    """

    num_reqs: int
    uniform_query_len: int
    num_padded_tokens: int

    def __post_init__(self) -> None:
        _require_query_len(self.uniform_query_len)
        if self.num_reqs < 0:
            raise ValueError(f"num_reqs is {self.num_reqs}; it cannot be negative")
        if self.num_padded_tokens % self.uniform_query_len:
            raise ValueError(
                f"a graph of {self.num_padded_tokens} tokens has no whole rows of {self.uniform_query_len}; "
                "capture at capture_sizes(...)"
            )
        if self.num_padded_tokens < self.num_tokens:
            raise ValueError(
                f"{self.num_reqs} rows of {self.uniform_query_len} tokens do not fit a graph of "
                f"{self.num_padded_tokens} tokens"
            )

    @classmethod
    def fit(cls, num_reqs: int, uniform_query_len: int, sizes: Iterable[int]) -> Self | None:
        """The padding to the smallest of the captured ``sizes`` that holds the rows; ``None`` if none does."""
        _require_query_len(uniform_query_len)
        whole = [size for size in sizes if size % uniform_query_len == 0]
        size = choose_padded_size(num_reqs * uniform_query_len, whole)
        return None if size is None else cls(num_reqs, uniform_query_len, size)

    @property
    def num_tokens(self) -> int:
        """Tokens of the real rows."""
        return self.num_reqs * self.uniform_query_len

    @property
    def num_rows(self) -> int:
        """Rows in the graph, real and neutral."""
        return self.num_padded_tokens // self.uniform_query_len

    @property
    def num_neutral_rows(self) -> int:
        """Rows added by padding."""
        return self.num_rows - self.num_reqs


def pad_indptr(indptr: Tensor, num_rows: int, out: Tensor | None = None) -> Tensor:
    """Offsets for ``num_rows`` rows, of which the added ones are empty: the last offset is repeated.

    Copies on the device, without waiting for it.

    Args:
        indptr: ``[rows + 1]``, any integer type: where each row starts, and the end.
        num_rows: rows after padding; not fewer than there are.
        out: ``[>= num_rows + 1]``, the persistent buffer that a graph reads; ``None`` for a new tensor.

    Returns:
        ``[num_rows + 1]``: the front of ``out``, or a new tensor.

    Raises:
        ValueError: ``indptr`` is empty or not flat, has more than ``num_rows`` rows, or ``out`` is too short.
    """
    if indptr.dim() != 1 or not len(indptr):
        raise ValueError(f"indptr has shape {list(indptr.shape)}; it must be [rows + 1]")
    num_entries, rows = num_rows + 1, len(indptr) - 1
    if num_rows < rows:
        raise ValueError(f"indptr has {rows} rows; it cannot be padded to {num_rows}")
    if out is None:
        out = indptr.new_empty(num_entries)
    elif out.dim() != 1 or len(out) < num_entries:
        raise ValueError(f"out has shape {list(out.shape)}; it must hold at least {num_entries} entries")
    padded = out[:num_entries]
    # No entry is read and written by one copy, so that indptr may be the front of out itself.
    padded[rows + 1 :] = indptr[-1:]
    padded[: rows + 1] = indptr
    return padded


def is_uniform_decode(
    query_lens: Counts,
    num_computed_tokens: Counts,
    uniform_query_len: int,
    num_draft_tokens: Counts | None = None,
) -> bool:
    """Whether every row continues a sequence with one known token and the same number of draft tokens.

    A prompt, or a piece of one, is never a decode, even if it has just as many tokens: its tokens are known, so they
    are no drafts, and a prompt's first piece has nothing computed before it.

    Args:
        query_lens: ``[num_reqs]``, tokens that each row brings; real rows only.
        num_computed_tokens: ``[num_reqs]``, tokens computed before.
        uniform_query_len: tokens that each row of a uniform decode brings: 1 and the draft tokens.
        num_draft_tokens: ``[num_reqs]``, how many of a row's tokens are drafts; ``None`` if none is.

    Raises:
        ValueError: the counts are not of equal length, or ``uniform_query_len`` is below 1.
    """
    _require_query_len(uniform_query_len)
    drafts = np.zeros_like(query_lens) if num_draft_tokens is None else num_draft_tokens
    if not query_lens.shape == num_computed_tokens.shape == drafts.shape:
        raise ValueError(
            f"query_lens, num_computed_tokens and num_draft_tokens have shapes {query_lens.shape}, "
            f"{num_computed_tokens.shape} and {drafts.shape}; each must be [num_reqs]"
        )
    if not query_lens.size:
        return False
    decodes = (query_lens == uniform_query_len) & (drafts == uniform_query_len - 1) & (num_computed_tokens > 0)
    return bool(decodes.all())


def _require_query_len(uniform_query_len: int) -> None:
    if uniform_query_len < 1:
        raise ValueError(f"uniform_query_len is {uniform_query_len}; each row brings at least 1 token")
