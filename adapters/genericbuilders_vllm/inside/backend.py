"""What vLLM asks of a back end before it makes a layer: names, classes, and what is refused."""

from __future__ import annotations

from typing import ClassVar

import torch
from typing_extensions import override
from vllm.v1.attention.backend import AttentionBackend
from vllm.v1.kv_cache_interface import KVCacheLayout

from genericbuilders_vllm.inside.builder import InsideBuilder

__all__ = ["InsideBackend"]

_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


class InsideBackend(AttentionBackend):
    """An attention back end of this library, for vLLM. A subclass names its implementation: ``get_impl_cls``.

    What the library does not compute is refused by the answers that vLLM's base class gives already (windows, sinks,
    MLA, sparse and non-causal attention, encoders, context parallelism, batch invariance), and by those below.
    """

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float32, torch.bfloat16, torch.float16]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "float16", "bfloat16"]

    # The implementation writes keys and values itself.
    forward_includes_kv_cache_update: bool = True

    @staticmethod
    @override
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    @override
    def get_builder_cls() -> type[InsideBuilder]:
        return InsideBuilder

    @classmethod
    @override
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        """Layouts in which a block is one run of bytes and a head's tokens follow each other."""
        return (KVCacheLayout.LBHNC, KVCacheLayout.BLHNC)

    @classmethod
    @override
    def supports_kv_connector(cls) -> bool:
        return False

    @classmethod
    @override
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        return False

    @classmethod
    @override
    def supports_combination(
        cls,
        head_size: int,
        dtype: torch.dtype,
        kv_cache_dtype: str | None,
        block_size: int | None,
        use_mla: bool,
        has_sink: bool,
        use_sparse: bool,
        use_mm_prefix: bool,
        device_capability: object,
    ) -> str | None:
        """A cache in another dtype than the model's, and any device but the CPU, are refused."""
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():
            return f"genericbuilders runs inside vLLM on the CPU only, not on {current_platform.device_name}"
        cached = dtype if kv_cache_dtype is None else _DTYPES.get(kv_cache_dtype, dtype)
        if cached != dtype:
            return f"genericbuilders keeps keys and values in the model's dtype {dtype}, not in {cached}"
        return None
