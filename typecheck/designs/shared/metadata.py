"""What each small back end's builder makes. The same classes serve every design."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = [
    "FlashInferMetadata",
    "FullMetadata",
    "GDNMetadata",
    "LinearMetadata",
    "MLAMetadata",
    "Mamba2Metadata",
    "PagedTreeMetadata",
]


@dataclass
class FullMetadata:
    """Full attention: ``block_table`` ``[num_reqs, max_blocks]``, ``seq_lens`` ``[num_reqs]``."""

    block_table: Tensor
    seq_lens: Tensor
    num_kv_heads: int


@dataclass
class MLAMetadata:
    """Latent attention: one vector of ``latent_size`` elements a token."""

    block_table: Tensor
    latent_size: int


@dataclass
class FlashInferMetadata:
    """A plan: ``paged_kv_indptr`` ``[num_reqs + 1]``; heads by layer where layers differ."""

    paged_kv_indptr: Tensor
    num_kv_heads: tuple[int, ...]


@dataclass
class Mamba2Metadata:
    """A chunked scan: ``state_indices`` ``[num_reqs]``, one state a request."""

    state_indices: Tensor
    num_states: int


@dataclass
class GDNMetadata:
    """The gated delta rule: ``state_indices`` ``[num_reqs, 1 + num_speculative_tokens]``."""

    state_indices: Tensor
    num_speculative_tokens: int


@dataclass
class LinearMetadata:
    """Linear attention: ``state_indices`` ``[num_reqs]``."""

    state_indices: Tensor
    num_decodes: int


@dataclass
class PagedTreeMetadata:
    """The out-of-tree back end's own: ``tree`` ``[num_reqs, max_blocks]``."""

    tree: Tensor
    page_size_bytes: int
