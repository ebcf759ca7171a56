"""Back ends, one module each: metadata, builder, implementation and the adapter that ties them."""

from __future__ import annotations

from genericbuilders.adapter import Adapter
from genericbuilders.backends.bailing_linear import BAILING_LINEAR
from genericbuilders.backends.chunked_local import CHUNKED_LOCAL
from genericbuilders.backends.encoder_only import ENCODER_ONLY
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.gdn import GDN
from genericbuilders.backends.indexer import INDEXER
from genericbuilders.backends.linear import LINEAR
from genericbuilders.backends.mamba1 import MAMBA1
from genericbuilders.backends.mamba2 import MAMBA2
from genericbuilders.backends.mla import MLA
from genericbuilders.backends.mla_sparse import MLA_SPARSE
from genericbuilders.backends.short_conv import SHORT_CONV

__all__ = ["BUILT_IN"]

BUILT_IN: tuple[Adapter, ...] = (
    FLASH_ATTN,
    CHUNKED_LOCAL,
    ENCODER_ONLY,
    MLA,
    MLA_SPARSE,
    INDEXER,
    MAMBA1,
    MAMBA2,
    GDN,
    LINEAR,
    BAILING_LINEAR,
    SHORT_CONV,
)
