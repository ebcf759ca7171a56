"""The spec of layers that keep a state of fixed size instead of every token."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch

from genericbuilders.config import EngineConfig
from genericbuilders.specs.arithmetic import cdiv, require_at_least
from genericbuilders.specs.base import KVCacheSpec

__all__ = ["MambaCacheMode", "MambaSpec"]

MambaCacheMode: TypeAlias = Literal["none", "align", "all"]
"""Which states a request keeps: its last; the last two block ends'; every block end's."""


@dataclass(frozen=True)
class MambaSpec(KVCacheSpec):
    """A cache of recurrent states. One page holds one state of the layer, whatever ``block_size`` is.

    It is a sibling of `AttentionSpec`: a state has several tensors, so there is no one ``dtype``, and no heads.

    Attributes:
        block_size: tokens between two states that may be kept for later requests.
        shapes: shape of each tensor of a state, in elements.
        dtypes: element type of each of them.
        page_size_padded: bytes that a page takes where it is larger than the state; ``None`` if it is not.
        mamba_type: which state-space layer this is; back ends choose by it.
        mamba_cache_mode: ``"none"``: one state a request; ``"align"``: the state before the current block and the
            running one; ``"all"``: one state for every block of tokens.
        num_speculative_blocks: states beside those, one for each draft token that may be rolled back.

    Raises:
        ValueError: no or unequally many shapes and dtypes, a dimension below 1, an unknown mode, a negative
            ``num_speculative_blocks``, or ``page_size_padded`` below the state's size.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    page_size_padded: int | None = None
    mamba_type: str = "mamba2"
    mamba_cache_mode: MambaCacheMode = "none"
    num_speculative_blocks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        # Lists and torch.Size would make the spec unhashable, or compare unequal to tuples.
        object.__setattr__(self, "shapes", tuple(tuple(shape) for shape in self.shapes))
        object.__setattr__(self, "dtypes", tuple(self.dtypes))
        if not self.shapes or len(self.shapes) != len(self.dtypes):
            raise ValueError(
                f"MambaSpec: {len(self.shapes)} shapes and {len(self.dtypes)} dtypes; a state needs at least one "
                "tensor, and a dtype for each"
            )
        if any(dim < 1 for shape in self.shapes for dim in shape):
            raise ValueError(f"MambaSpec: shapes are {self.shapes}; every dimension must be at least 1")
        if self.mamba_cache_mode not in get_args(MambaCacheMode):
            raise ValueError(
                f"MambaSpec: mamba_cache_mode is {self.mamba_cache_mode!r}; it must be one of "
                f"{', '.join(get_args(MambaCacheMode))}"
            )
        require_at_least(self, "num_speculative_blocks", self.num_speculative_blocks, 0, "blocks")
        if self.page_size_padded is not None and self.page_size_padded < self.unpadded_page_size_bytes:
            raise ValueError(
                f"MambaSpec: page_size_padded is {self.page_size_padded} bytes; the state takes "
                f"{self.unpadded_page_size_bytes} bytes, so it must be at least that"
            )

    @property
    def unpadded_page_size_bytes(self) -> int:
        """Bytes of one state."""
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in zip(self.shapes, self.dtypes, strict=True))

    @property
    def page_size_bytes(self) -> int:
        """The bytes of one page: one state, or ``page_size_padded``. It does not depend on ``block_size``."""
        return self.unpadded_page_size_bytes if self.page_size_padded is None else self.page_size_padded

    @property
    def has_slots(self) -> bool:
        """No: a state stands for all tokens before it."""
        return False

    @property
    def allocation_key(self) -> tuple[Hashable, ...]:
        """The mode and the rolled-back states decide; shapes do not."""
        return (MambaSpec, self.mamba_cache_mode, self.num_speculative_blocks)

    def max_resident_blocks(self, config: EngineConfig) -> int:
        """States that a request keeps at once: 1, 2, or one for each block of tokens; and the speculative ones."""
        if self.mamba_cache_mode == "all":
            kept = cdiv(config.max_model_len, self.block_size)
        else:
            kept = 2 if self.mamba_cache_mode == "align" else 1
        return kept + self.num_speculative_blocks

    def max_num_blocks_per_req(self, config: EngineConfig, max_len: int) -> int:
        """The columns in the block table: one for each block of tokens, unless only the last state is kept."""
        kept = 1 if self.mamba_cache_mode == "none" else cdiv(max_len, self.block_size)
        return kept + self.num_speculative_blocks
