"""Multi-head latent attention (DeepSeek-V2): the cache holds one latent vector a token instead of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import LatentAdapter
from genericbuilders.backends.mla_attend import MLAInputs, attend_decodes, attend_prefills, write_latents
from genericbuilders.backends.mla_common import MLACommonMetadata, MLACommonMetadataBuilder
from genericbuilders.builder import LatentImpl
from genericbuilders.kernels.select import select_kernels

__all__ = ["MLA", "MLAImpl", "MLAInputs", "MLAMetadata", "MLAMetadataBuilder"]


@dataclass
class MLAMetadata(MLACommonMetadata):
    """One batch for dense latent attention."""


class MLAMetadataBuilder(MLACommonMetadataBuilder[MLAMetadata]):
    """The shared part is all there is."""

    @property
    @override
    def metadata_type(self) -> type[MLAMetadata]:
        return MLAMetadata


class MLAImpl(LatentImpl[MLAMetadata, MLAInputs]):
    """Stores latent vectors; decodes attend over them, prefills over keys and values expanded from them."""

    @override
    def forward(self, inputs: MLAInputs, kv_cache: Tensor, attn_metadata: MLAMetadata) -> Tensor:
        """The heads' results, ``[num_tokens, num_heads, v_head_dim]``; see `InputsImpl.forward`."""
        layer, query = self.layer, inputs.query
        kernels = select_kernels(kv_cache.device, kv_cache.dtype)
        write_latents(kernels, layer, inputs, kv_cache, attn_metadata)
        out = query.new_zeros(len(query), layer.num_heads, layer.v_head_dim)
        decoded, tokens = attn_metadata.num_decode_tokens, attn_metadata.num_actual_tokens
        if attn_metadata.decode is not None:
            part = MLAInputs(query[:decoded], inputs.latent[:decoded], inputs.kv_up)
            out[:decoded] = attend_decodes(kernels, layer, part, kv_cache, attn_metadata.decode)
        if attn_metadata.prefill is not None:
            new = slice(decoded, tokens)
            part = MLAInputs(query[new], inputs.latent[new], inputs.kv_up)
            out[new] = attend_prefills(kernels, layer, part, kv_cache, attn_metadata.prefill)
        return out


MLA = LatentAdapter("mla", MLAMetadataBuilder, MLAImpl)
