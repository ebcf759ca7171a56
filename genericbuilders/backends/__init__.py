"""Back ends, one module each: metadata, builder, implementation and the adapter that ties them."""

from __future__ import annotations

from genericbuilders.adapter import Adapter
from genericbuilders.backends.bailing_linear import BAILING_LINEAR
from genericbuilders.backends.chunked_local import CHUNKED_LOCAL
from genericbuilders.backends.cross import CROSS
from genericbuilders.backends.encoder_only import ENCODER_ONLY
from genericbuilders.backends.fast_prefill import FAST_PREFILL
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.flashinfer import FLASHINFER
from genericbuilders.backends.fp8_kv import FP8_KV
from genericbuilders.backends.gdn import GDN
from genericbuilders.backends.hpc import HPC
from genericbuilders.backends.indexer import INDEXER
from genericbuilders.backends.int8_kv import INT8_KV
from genericbuilders.backends.linear import LINEAR
from genericbuilders.backends.mamba1 import MAMBA1
from genericbuilders.backends.mamba2 import MAMBA2
from genericbuilders.backends.mla import MLA
from genericbuilders.backends.mla_sparse import MLA_SPARSE
from genericbuilders.backends.short_conv import SHORT_CONV
from genericbuilders.backends.sink import SINK
from genericbuilders.backends.triton import TRITON
from genericbuilders.backends.turboquant import TURBOQUANT

__all__ = ["BUILT_IN"]

BUILT_IN: tuple[Adapter, ...] = (
    # A spec with sinks is one of full attention, too: whoever knows the sinks comes first.
    SINK,
    FLASH_ATTN,
    CHUNKED_LOCAL,
    FAST_PREFILL,
    ENCODER_ONLY,
    CROSS,
    MLA,
    FP8_KV,
    INT8_KV,
    TURBOQUANT,
    MLA_SPARSE,
    INDEXER,
    MAMBA1,
    MAMBA2,
    GDN,
    LINEAR,
    BAILING_LINEAR,
    SHORT_CONV,
    FLASHINFER,
    TRITON,
    HPC,
)
